"""Ten-step workflows on SQLite whose stack is looked at, in a process of its own:

    python -m bench._profiled FILE AT_ONCE BATCHES ALONE

Prints one JSON object: for `together` and `alone` the seconds of each stack, and how many steps were
done; and how durable the store is. Statements and commits go through functions of their own here, since
a stack has no names of C functions.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from typing import Any

import outlast
from bench._our_steps import ten_steps
from bench._sampling import Stacks, sampled
from bench._stores import settings_of
from bench.peers._clock import STEPS, made_ready, wait_for_the_word
from outlast.stores.sqlite import SqliteStore


class Named(sqlite3.Connection):
    """Tells commits from other statements by the name of a function."""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return self.commit(sql) if sql == "COMMIT" else self.statement(sql, *parameters)

    def statement(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Any but a commit."""
        return super().execute(sql, *parameters)

    def commit(self, sql: str = "COMMIT") -> sqlite3.Cursor:  # type: ignore[override]
        """A commit, which waits for the disk."""
        return super().execute(sql)

    def executemany(self, sql: str, rows: Any, /) -> sqlite3.Cursor:
        return self.statements(sql, rows)

    def statements(self, sql: str, rows: Any) -> sqlite3.Cursor:
        """The same one for many rows."""
        return super().executemany(sql, rows)


def connect(path: str) -> Named:
    """As the store itself does it."""
    return sqlite3.connect(
        path,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
        factory=Named,
    )


async def main(file: str, at_once: int, batches: int, alone: int) -> None:
    """Look."""
    async with (
        SqliteStore(file, connect=connect) as store,
        outlast.App(store, workflows=[ten_steps]) as app,
    ):

        async def once() -> None:
            if await (await app.start(ten_steps(1))).result() != 1 + STEPS:
                raise AssertionError("a wrong result")

        await asyncio.gather(*(once() for _ in range(at_once)))
        wait_for_the_word()
        with made_ready(), sampled() as together:
            for _ in range(batches):
                await asyncio.gather(*(once() for _ in range(at_once)))
        with made_ready(), sampled() as one_by_one:
            for _ in range(alone):
                await once()
        found = {"together": _listed(together), "alone": _listed(one_by_one)}
        print(json.dumps({**found, "settings": settings_of(store)}))


def _listed(stacks: Stacks) -> list[tuple[list[str], float]]:
    return [(list(stack), seconds) for stack, seconds in stacks.items()]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:5])))
