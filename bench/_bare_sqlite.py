"""What the store is measured against: a loop in Python's sqlite3 that does the same inserts.

The file is made by the store itself, so tables and indexes are the same, and so are the pragmas
(`outlast.stores.sqlite.connection.configure`) but one: the loop leaves checkpoints to SQLite, at
the same size of the log at which the store checkpoints it. It writes the same rows in the same order: as
many runs as there are callers, in turn. Rows are made beforehand. There are two loops:

- *events*: for each append its rows go into `events` with `executemany`. Nothing is checked; two
  writers would spoil each other's histories.
- *fenced*: besides, one UPDATE of the row in `runs`, on condition of its token and its sequence,
  which must hit: the least that a store with one writer per run can do.

Each with a transaction (BEGIN IMMEDIATE … COMMIT) per append or per hundred appends.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench._appends import some_events
from bench.peers._clock import made_ready
from outlast.model import Event, new_id
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import configure, connect
from outlast.stores.sqlite.rows import event_rows
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.wal import LOG_LIMIT_BYTES

PAGE = 4096
INSERT = query("insert_events")
ADVANCE = """
UPDATE runs SET sequence = ?, revision = revision + 1, commit_id = ?, updated_at = ?
WHERE key = ? AND token = ? AND sequence = ?
"""


async def bare_loop(path: str, callers: int, each: int, size: int, *, fenced: bool) -> float:
    """Seconds for so many callers' appends, as many in a transaction as there are callers."""
    async with SqliteStore(path):
        pass  # the tables are there
    loop = BareLoop(path)
    try:
        ready = loop.prepare([some_events("bare", each, size) for _ in range(callers)])
        with made_ready():
            return loop.run(ready, per_transaction=callers, fenced=fenced)
    finally:
        loop.close()


class Append(NamedTuple):
    """One append, made ready: the rows of its events, and the parameters of the fence."""

    rows: list[tuple[Any, ...]]
    fence: tuple[Any, ...]


class BareLoop:
    """A connection set up like the store's own, to a file that the store has made."""

    def __init__(self, path: str) -> None:
        connection = connect(path)
        assert isinstance(connection, sqlite3.Connection)
        configure(connection, synchronous="full", log_limit=LOG_LIMIT_BYTES)
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_LIMIT_BYTES // PAGE}").fetchall()
        self._connection = connection
        self._key = 1_000_000  # beyond those of the store

    def prepare(self, script: Sequence[Sequence[Sequence[Event]]]) -> list[Append]:
        """Runs of its own, one for each list of appends, and the appends as rows: the first of
        each run, then the second of each, as callers who take turns would write them."""
        now = time.time_ns() // 1000
        keys = [self._begin_run(now) for _ in script]
        ready, sequence = [], 0
        for turn in zip(*script, strict=True):
            for key, events in zip(keys, turn, strict=True):
                rows = event_rows(events, key=key, after=sequence, token=key, now=now)
                fence = (sequence + len(rows), new_id(), now, key, key, sequence)
                ready.append(Append(rows, fence))
            sequence += len(turn[0])
        return ready

    def _begin_run(self, now: int) -> int:
        self._key += 1
        key = self._key
        self._connection.execute(
            query("insert_runs"),
            (
                key, f"bare-{key}", new_id(), "bench", None, "running", None, None, None, "bench",
                key, now * 2, 0, 0, "", 0, now, now, None,
            ),
        )  # fmt: skip
        return key

    def run(self, appends: list[Append], *, per_transaction: int, fenced: bool) -> float:
        """Do them one after the other; the seconds it took."""
        execute, executemany = self._connection.execute, self._connection.executemany
        begun = time.perf_counter()
        for start in range(0, len(appends), per_transaction):
            execute("BEGIN IMMEDIATE")
            for rows, fence in appends[start : start + per_transaction]:
                if fenced and execute(ADVANCE, fence).rowcount != 1:
                    raise AssertionError("fenced")
                executemany(INSERT, rows)
            execute("COMMIT")
        return time.perf_counter() - begun

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()
