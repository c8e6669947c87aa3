"""Cancelling a run whose code is nowhere: it takes effect, or it is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import outlast
from outlast.cli.session import client_of
from outlast.errors import CodeMissing, RunCancelled
from outlast.model import Status
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from tests.unit.engine.watching import PATIENCE, Watch


@outlast.workflow
async def removed() -> None:
    await outlast.wait_for_signal("go")


@outlast.workflow
async def kept() -> None:
    await outlast.wait_for_signal("go")


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    async with opened:
        async with outlast.App(opened, workflows=[removed]) as app:
            await app.start(removed(), id="r")
            await Watch(opened).until("r", lambda run: run.status is Status.WAITING)
        yield opened


@pytest.mark.proves("I17")
async def test_a_cancel_that_no_live_worker_can_obey_is_refused(store: Store) -> None:
    """The workflow was renamed or removed: whoever cancels is told, and may terminate."""
    async with outlast.App(store, workflows=[kept]) as app:
        await Watch(store).listed()
        with pytest.raises(CodeMissing, match="1 worker is alive and does not have it"):
            await app.get("r").cancel()
        assert await store.inbox("r") == []
        await app.get("r").terminate()
        assert (await store.get("r")).status is Status.CANCELLED


@pytest.mark.proves("I17")
async def test_a_cancel_waits_for_a_worker_if_none_lives(store: Store) -> None:
    """All workers may be down for a moment: the next one that has the code obeys."""
    client = client_of(store)
    await client.get("r").cancel("enough")
    async with outlast.App(store, workflows=[removed]) as app:
        with pytest.raises(RunCancelled, match="enough"):
            await app.get("r").result(timeout=PATIENCE)


@pytest.mark.proves("I17")
async def test_a_cancel_reaches_a_worker_that_has_the_code(store: Store) -> None:
    """The process that cancels need not have it."""
    async with (
        outlast.App(store, workflows=[kept]) as app,
        outlast.App(store, workflows=[removed]),
    ):
        await Watch(store).listed(2)
        await app.get("r").cancel()
        with pytest.raises(RunCancelled):
            await app.get("r").result(timeout=PATIENCE)
