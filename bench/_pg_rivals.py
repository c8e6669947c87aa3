"""Databases for a round each, and the others' programs on them, each round in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from bench._rival import REQUIREMENTS, Round, environment

HERE = Path(__file__).parent
PROCRASTINATE = ["procrastinate==3.10.0", "psycopg[binary,pool]"]


class Jobs(NamedTuple):
    """Seconds to enqueue so many jobs, and to do them."""

    enqueue: float
    work: float


class Server:
    """The server that all share."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self._url, self._folder, self._name = url, folder, name
        self._databases = 0

    async def database(self) -> str:
        """A new database: the URL."""
        self._databases += 1
        name = f"{self._name}_{self._databases}"
        await self.ask(f"CREATE DATABASE {name}")
        return self._url.rpartition("/")[0] + f"/{name}"

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

    async def ask(self, sql: str) -> list[asyncpg.Record]:
        """Rows, on a connection of its own."""
        connection = await asyncpg.connect(self._url)
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()

    # -- others -------------------------------------------------------------------------------

    def dbos(self, url: str, how: str, count: int) -> Round:
        """Ten-step workflows in DBOS, see bench/_dbos.py."""
        python = environment("dbos", REQUIREMENTS)
        return Round(**self._told(python, "_dbos.py", url, "default", how, str(count)))

    def procrastinate(self, url: str, count: int, concurrency: int) -> Jobs:
        """Tiny jobs, see bench/_procrastinate.py."""
        python = environment("procrastinate", PROCRASTINATE)
        told = self._told(python, "_procrastinate.py", url, str(count), str(concurrency))
        return Jobs(**told)

    def _told(self, python: Path, script: str, *args: str) -> dict[str, Any]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [str(python), str(HERE / script), *args],
            stdout=subprocess.PIPE,
            cwd=self._folder,
            env=env,
            check=True,
            timeout=600,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
