"""The write-ahead log: when it is folded into the file, and why only ever by the writer.

Commits are appended to ``<file>-wal``. From time to time that log has to be folded (SQLite: a
checkpoint), after which the next commit starts it again from the top. SQLite 3.7.0 to 3.51.2 have
a race here: a checkpoint that runs while another connection commits may take the old length of the
log for the length of the new one, and loses or damages data without a word. Checkpoints that hold
the writer's lock are safe. But TRUNCATE, RESTART and FULL only *try* to get it: if another
connection is writing, they quietly become PASSIVE, which is the dangerous one.

So a fold is a write transaction like any other: the writer takes the lock with BEGIN IMMEDIATE, and
while it holds it, a second connection runs the checkpoint. That one finds the lock taken, by us,
and copies what no reader needs any more, while nobody in any process can commit or start the log
again. Automatic checkpoints are off.

A fold is due when the log has outgrown `limit`. The next commit starts again from the top and cuts
the file back to `limit` (`journal_size_limit`), so its size tells how much waits; it is not cut to
nothing, because overwriting is faster to sync than growing. Readers can hold a fold up. Past
`hard_limit` writers wait for them, so that the log stays bounded.
"""

from __future__ import annotations

import os
from pathlib import Path

from outlast.stores.sqlite.connection import Statements

LIMIT = 8 * 1024 * 1024
HARD_LIMIT = 64 * 1024 * 1024


class Log:
    """The log of one file, with the connection that folds it."""

    def __init__(self, path: Path, connection: Statements, *, limit: int, hard_limit: int) -> None:
        self.limit = limit
        self.hard_limit = hard_limit
        self.folds = 0
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
        """Look whether to fold now. After a fold that readers held up, not before it has grown.
        `is_overfull` then says whether writers have to wait for one."""
        size = self.size
        self.is_overfull = size > self.hard_limit
        if size <= self.limit:
            self._again_at = 0
            return False
        return size >= self._again_at

    def fold(self) -> bool:
        """Fold what no reader needs; whether that was all. Only ever under the writer's lock."""
        self._again_at = self.size + self.limit // 8
        rows = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        _, logged, folded = rows[0]
        self.folds += 1
        # -1: another process is folding at this moment.
        return bool(logged == folded >= 0)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def has_reset_race(version: str) -> bool:
    """Whether this version of SQLite has the race described above."""
    parts = tuple(int(part) for part in version.split("."))[:3]
    fixed = parts >= (3, 51, 3) or (3, 50, 7) <= parts < (3, 51) or (3, 44, 6) <= parts < (3, 45)
    return parts >= (3, 7, 0) and not fixed
