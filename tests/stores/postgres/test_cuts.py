"""A proxy that cuts the connection in the middle of a commit: the outcome is found out, never
guessed. At every byte: `./dev prove postgres_cuts`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast.stores.postgres import PostgresStore
from tests.stores.postgres.cutting import cut_commits
from tests.stores.postgres.places import direct
from tests.unit.testkit.faults.proxy import Proxy

pytestmark = pytest.mark.server


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """A proxy in front of the server."""
    proxy = Proxy(direct())
    yield proxy
    await proxy.stop()


@pytest.mark.timeout(300)
@pytest.mark.proves("I3", "I12", "C-03", "C-20")
@pytest.mark.parametrize("upstream", [True, False], ids=["request", "answer"])
async def test_a_commit_that_is_cut_off(store: PostgresStore, proxy: Proxy, upstream: bool) -> None:
    """In a dozen places: what the caller hears is never wrong, and sent again it has happened once."""

    def places(length: int) -> list[int]:
        return [*range(0, length, max(1, length // 12)), length - 1]

    await cut_commits(store, proxy, upstream=upstream, places=places)
