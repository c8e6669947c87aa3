"""A server that is too old is refused when a store opens, with its version in the message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from outlast.errors import StoreFault
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.connection import ConnectionSource
from outlast.stores.redis.connection import Command, SingleLink
from outlast.stores.redis.location import QUESTIONS, inspect


class OldPostgres(ConnectionSource):
    """A PostgreSQL of some version; it keeps what else it was asked."""

    name = "the archive,"

    def __init__(self, number: int, version: str) -> None:
        self._row = (
            *(number, "UTF8", 7, "on", "on", "on", ""),
            *(False, version, "read committed"),
        )
        self.asked: list[str] = []

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Any]:
        yield self

    async def fetch(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        """The answer to the first question, and no other."""
        self.asked.append(query)
        return [self._row]

    def get_server_pid(self) -> int:
        """As of a connection that goes through no pooler."""
        return 7


async def test_an_old_postgresql_is_refused_before_anything_is_written() -> None:
    """12 lacks what the statements use: they would fail one by one, some of them in the middle of a run."""
    server = OldPostgres(120022, "12.22 (Debian 12.22-1)")
    with pytest.raises(StoreFault, match=r"runs PostgreSQL 12\.22 .*: 13 or later is needed"):
        await PostgresStore(server).open()
    assert len(server.asked) == 1


class OldRedis(SingleLink):
    """A Redis that answers with so much of INFO."""

    def __init__(self, *servers: str) -> None:
        self._servers = servers

    async def everywhere(self, commands: Sequence[Command]) -> list[list[Any]]:
        assert list(commands) == QUESTIONS
        return [
            [b"", b"", b"", b"", b"", server.encode(), b"cluster_enabled:0"]
            for server in self._servers
        ]


@pytest.mark.parametrize("servers", [["6.0.16"], ["7.0.15", "5.0.14"]], ids=["one", "of several"])
async def test_an_old_redis_is_refused(servers: list[str]) -> None:
    """One primary that is too old is enough: it has a part of the keys."""
    link = OldRedis(*(f"redis_version:{version}\r\n" for version in servers))
    with pytest.raises(StoreFault, match=rf"the archive runs Redis {servers[-1]}: 6\.2 or later"):
        await inspect(link, "the archive", allow_eviction=False)


@pytest.mark.parametrize(
    "said, version",
    [
        ("redis_version:6.2.0", "6.2.0"),
        ("redis_version:10.1.0", "10.1.0"),
        ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2", "9.1.2"),
        ("redis_version:hidden", "hidden"),
        ("", "unknown"),
    ],
)
async def test_other_servers_are_accepted(said: str, version: str) -> None:
    """Valkey tells the version of Redis that it is compatible with beside its own; a hosted service may
    tell none."""
    found = await inspect(OldRedis(said), "here", allow_eviction=False)
    assert found.version == version
