"""Databases in one PostgreSQL server, a new one for each contestant and round."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg


class Databases:
    """The server that all share."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self._count = 0

    async def database(self) -> str:
        """A new database: the URL."""
        self._count += 1
        name = f"bench_{self._count}"
        await self.ask(f"CREATE DATABASE {name}")
        return self.url.rpartition("/")[0] + f"/{name}"

    async def remove(self, url: str) -> None:
        """Drop a database, whoever is still connected to it."""
        await self.ask(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")

    async def transactions(self, url: str) -> int:
        """How many a database has seen. Connections tell it at the latest when they end."""
        name = url.rpartition("/")[2]
        while await self.ask(f"SELECT FROM pg_stat_activity WHERE datname = '{name}'"):
            pass
        [[count]] = await self.ask(
            f"SELECT xact_commit FROM pg_stat_database WHERE datname = '{name}'"
        )
        return int(count)

    async def settings(self) -> str:
        """What it promises."""
        [[version, fsync, synchronous]] = await self.ask(
            "SELECT current_setting('server_version'), current_setting('fsync'), "
            "current_setting('synchronous_commit')"
        )
        return f"PostgreSQL {version.split()[0]}, fsync={fsync}, synchronous_commit={synchronous}"

    async def grow_older_than(self, seconds: float) -> None:
        """Wait until the server has been up for so long."""
        [[age]] = await self.ask(
            "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8"
        )
        await asyncio.sleep(max(seconds - age, 0))

    async def ask(self, sql: str) -> list[asyncpg.Record]:
        """Rows, on a connection of its own."""
        connection = await asyncpg.connect(self.url)
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()
