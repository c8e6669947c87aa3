"""The log of a file that an application writes too: bounded, also while no store is open.

The application's connections must not fold it by themselves (log.py), and only a store that commits does it
for them. So whoever has taken that from a connection looks, before its next transaction, whether the log
has outgrown its limit, and folds it as the store does: under the writer's lock.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from outlast.stores.sqlite.connection import connect
from outlast.stores.sqlite.faults import is_busy
from outlast.stores.sqlite.log import HARD_LIMIT, LIMIT, Log

_logger = logging.getLogger("outlast.sqlite")


class Keeper:
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
        """Whether there is something to fold: one look at the size of a file."""
        return self._log.is_due()

    def fold(self) -> bool:
        """Fold, unless somebody else writes or folds at this moment: then the next one does. Not to be
        called inside a transaction on the file."""
        if not self._folding.acquire(blocking=False):
            return False
        try:
            return self._fold()
        except Exception as error:  # noqa: BLE001 - the caller's own statement says what is wrong
            if not is_busy(error):
                _logger.warning("the log of %s cannot be folded now: %s", self._path, error)
            return False
        finally:
            self._folding.release()

    def _fold(self) -> bool:
        writer = connect(self._path)
        try:
            writer.execute("BEGIN IMMEDIATE")
            return self._log.fold()
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
