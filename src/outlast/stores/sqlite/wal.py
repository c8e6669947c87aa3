"""The write-ahead log: when it is copied into the file (a checkpoint), and why only ever by the writer.

Commits are appended to ``<file>-wal``. From time to time that log has to be copied into the file (a
checkpoint), after which the next commit starts it again from the top. SQLite 3.7.0 to 3.51.2 have
a race here: a checkpoint that runs while another connection commits may take the old length of the
log for the length of the new one, and loses or damages data without a word. Checkpoints that hold
the writer's lock are safe. But TRUNCATE, RESTART and FULL only *try* to get it: if another
connection is writing, they quietly become PASSIVE, which is the dangerous one.

So a checkpoint is a write transaction like any other: the writer takes the lock with BEGIN IMMEDIATE, and
while it holds it, a second connection runs the checkpoint. That one finds the lock taken, by us,
and copies what no reader needs any more, while nobody in any process can commit or start the log
again. Automatic checkpoints are off.

A checkpoint is due when the log has outgrown `limit`. The next commit starts again from the top and cuts
the file back to `limit` (`journal_size_limit`), so its size tells how much waits; it is not cut to
nothing, because overwriting is faster to sync than growing. Readers can hold a checkpoint up. Past
`hard_limit` writers wait for them, so that the log stays bounded.

The log of a file that an application writes too: bounded, also while no store is open.

The application's connections must not checkpoint it by themselves (log.py), and only a store that commits does it
for them. So whoever has taken that from a connection looks, before its next transaction, whether the log
has outgrown its limit, and checkpoints it as the store does: under the writer's lock.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

from outlast.stores.sqlite.connection import Statements, connect
from outlast.stores.sqlite.driver_errors import is_busy

LIMIT = 8 * 1024 * 1024
HARD_LIMIT = 64 * 1024 * 1024


class Log:
    """The log of one file, with the connection that checkpoints it."""

    def __init__(self, path: Path, connection: Statements, *, limit: int, hard_limit: int) -> None:
        self.limit = limit
        self.hard_limit = hard_limit
        self.checkpoints = 0
        self.is_overfull = False  # as of the last look
        self._path = f"{path}-wal"
        self._connection = connection
        self._again_at = 0

    @property
    def size(self) -> int:
        """Bytes in the log; 0 if there is none that the operating system can see."""
        try:
            return os.stat(self._path).st_size  # noqa: PTH116 (half the time, on every commit)
        except OSError:
            return 0

    def is_due(self) -> bool:
        """Look whether to checkpoint now. After a checkpoint that readers held up, not before it has grown.
        `is_overfull` then says whether writers have to wait for one."""
        size = self.size
        self.is_overfull = size > self.hard_limit
        if size <= self.limit:
            self._again_at = 0
            return False
        return size >= self._again_at

    def checkpoint(self) -> bool:
        """Checkpoint what no reader needs; whether that was all. Only ever under the writer's lock."""
        self._again_at = self.size + self.limit // 8
        rows = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        _, logged, checkpointed = rows[0]
        self.checkpoints += 1
        # -1: another process is checkpointing at this moment.
        return bool(logged == checkpointed >= 0)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def has_reset_race(version: str) -> bool:
    """Whether this version of SQLite has the race described above."""
    parts = tuple(int(part) for part in version.split("."))[:3]
    fixed = parts >= (3, 51, 3) or (3, 50, 7) <= parts < (3, 51) or (3, 44, 6) <= parts < (3, 45)
    return parts >= (3, 7, 0) and not fixed


_logger = logging.getLogger("outlast.sqlite")


class WalKeeper:
    """Keeps the log of one file short, in one process. Thread-safe."""

    def __init__(self, path: str, *, limit: int = LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._folding = threading.Lock()
        self._log = Log(Path(path), _Once(path), limit=limit, hard_limit=HARD_LIMIT)

    def take_over(self, driver: Any) -> None:
        """Let a connection of the application's leave the log to us."""
        cursor = driver.cursor()
        cursor.execute("PRAGMA wal_autocheckpoint = 0")
        cursor.execute(f"PRAGMA journal_size_limit = {self._limit}")
        cursor.fetchall()
        cursor.close()

    def is_due(self) -> bool:
        """Whether there is something to checkpoint: one look at the size of a file."""
        return self._log.is_due()

    def checkpoint(self) -> bool:
        """Checkpoint, unless somebody else writes or checkpoints at this moment: then the next one does. Not to be
        called inside a transaction on the file."""
        if not self._folding.acquire(blocking=False):
            return False
        try:
            return self._checkpoint()
        except Exception as error:  # noqa: BLE001 - the caller's own statement says what is wrong
            if not is_busy(error):
                _logger.warning("the log of %s cannot be checkpointed now: %s", self._path, error)
            return False
        finally:
            self._folding.release()

    def _checkpoint(self) -> bool:
        writer = connect(self._path)
        try:
            writer.execute("BEGIN IMMEDIATE")
            return self._log.checkpoint()
        finally:
            writer.close()  # and with it the transaction, which has written nothing


class _Once:
    """A connection for one statement."""

    def __init__(self, path: str) -> None:
        self._path = path

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        """Run it, to its end."""
        connection = connect(self._path)
        try:
            connection.execute("PRAGMA synchronous = full").fetchall()
            return _Answer(connection.execute(sql, parameters).fetchall())
        finally:
            connection.close()

    def close(self) -> None:
        """It is closed."""


class _Answer(list[Any]):
    def fetchall(self) -> list[Any]:
        """All rows."""
        return list(self)
