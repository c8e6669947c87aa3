"""WriteAheadLog: when the log is checkpointed, and why only the writer does it.

Commits are appended to ``<file>-wal``. From time to time the log is copied into the file (a checkpoint),
after which the next commit starts it again from the top. SQLite 3.7.0 to 3.51.2 have a race here: a
checkpoint that runs while another connection commits may take the old length of the log for the length
of the new one, and silently loses or damages data. Checkpoints that hold the writer's lock are safe. But
TRUNCATE, RESTART and FULL only *try* to get it: if another connection is writing, they silently become
PASSIVE, which has the race.

So a checkpoint is a write transaction like any other: the writer takes the lock with BEGIN IMMEDIATE, and
while it holds the lock, a second connection runs the checkpoint. That connection finds the lock taken,
and copies what no reader needs any more, while no process can commit or restart the log. Automatic
checkpoints are off.

A checkpoint is due when the log has outgrown `limit`. The next commit starts from the top and truncates
the file to `limit` (`journal_size_limit`), so its size says how much waits; it is not truncated to zero,
because overwriting is faster to sync than growing. Readers can hold a checkpoint up. Past `hard_limit`
writers wait for them, so that the log stays bounded.

`WalCheckpointer` does the same in the file of an application: the application's connections must not
checkpoint by themselves, and a store that commits may not be open. So before a transaction, the
integration checks whether the log has outgrown its limit, and checkpoints it under the writer's lock.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

from outlast.stores.sqlite.connection import Statements, connect
from outlast.stores.sqlite.driver_errors import is_busy

LOG_LIMIT_BYTES = 8 * 1024 * 1024
LOG_HARD_LIMIT_BYTES = 64 * 1024 * 1024


class WriteAheadLog:
    """The log of one file, with the connection that checkpoints it."""

    def __init__(self, path: Path, connection: Statements, *, limit: int, hard_limit: int) -> None:
        self.limit = limit
        self.hard_limit = hard_limit
        self.checkpoints = 0
        self.is_overfull = False  # at the last `is_due`
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
        """Whether to checkpoint now. After a checkpoint that readers held up, only once the log has
        grown. Sets `is_overfull`: writers must wait for a checkpoint."""
        size = self.size
        self.is_overfull = size > self.hard_limit
        if size <= self.limit:
            self._again_at = 0
            return False
        return size >= self._again_at

    def checkpoint(self) -> bool:
        """Checkpoint what no reader needs; False if that was not all. Only under the writer's lock."""
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


class WalCheckpointer:
    """Checkpoints the log of an application's file, in one process. Thread-safe."""

    def __init__(self, path: str, *, limit: int = LOG_LIMIT_BYTES) -> None:
        self._path = path
        self._limit = limit
        self._lock = threading.Lock()
        self._log = WriteAheadLog(
            Path(path), _Once(path), limit=limit, hard_limit=LOG_HARD_LIMIT_BYTES
        )

    def take_over(self, driver: Any) -> None:
        """Turn off automatic checkpoints of a connection of the application."""
        cursor = driver.cursor()
        cursor.execute("PRAGMA wal_autocheckpoint = 0")
        cursor.execute(f"PRAGMA journal_size_limit = {self._limit}")
        cursor.fetchall()
        cursor.close()

    def is_due(self) -> bool:
        """Whether to checkpoint now: reads the size of a file."""
        return self._log.is_due()

    def checkpoint(self) -> bool:
        """Checkpoint, unless another connection is writing: then the next call does. Do not call it
        inside a transaction on the file."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._checkpoint()
        except Exception as error:  # noqa: BLE001 - the caller's own statement will fail likewise
            if not is_busy(error):
                _logger.warning("the log of %s cannot be checkpointed now: %s", self._path, error)
            return False
        finally:
            self._lock.release()

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
