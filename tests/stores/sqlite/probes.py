"""Connections that tell what they do and obey, and another program on the same file."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from outlast.model import Event
from outlast.stores.sqlite.connection import Connection, Cursor, connect


class Probe:
    """Watches every statement of the connections that it opens."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, str]] = []
        self.connections: list[Connection] = []
        self.busy = threading.Event()
        self._before: dict[str, Callable[[], None]] = {}

    def connect(self, path: str) -> Connection:
        """For `SqliteStore(connect=…)`."""
        probed = ProbedConnection(connect(path), self)
        self.connections.append(probed)
        return probed

    def before(self, sql: str, act: Callable[[], None]) -> None:
        """Call `act` before each statement that begins with `sql`."""
        self._before[sql] = act

    def threads_of(self, sql: str) -> set[str]:
        """The names of the threads that have run statements that begin with `sql`."""
        return {thread for thread, text in self.statements if text.startswith(sql)}

    def see(self, sql: str) -> None:
        """A statement is about to run."""
        sql = re.sub(r"^--.*\n", "", sql, flags=re.MULTILINE)
        self.statements.append((threading.current_thread().name, sql))
        for begin, act in list(self._before.items()):
            if sql.startswith(begin):
                act()


class ProbedConnection:
    """A connection that tells its probe."""

    def __init__(self, inner: Connection, probe: Probe) -> None:
        self._inner = inner
        self._probe = probe

    def execute(self, sql: str, parameters: Any = (), /) -> Cursor:
        """Run one statement."""
        self._probe.see(sql)
        try:
            return self._inner.execute(sql, parameters)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                self._probe.busy.set()
            raise

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> object:
        """Run one statement for each set of parameters."""
        self._probe.see(sql)
        return self._inner.executemany(sql, parameters)

    def close(self) -> None:
        """Give it back."""
        self._inner.close()


class Other:
    """Another program: its connections know nothing of ours, as in another process."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._connection: sqlite3.Connection | None = None

    @property
    def connection(self) -> sqlite3.Connection:
        """Opened when it is needed, because the store makes the file."""
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path, timeout=0, isolation_level=None, check_same_thread=False
            )
        return self._connection

    def lock(self) -> None:
        """Begin to write."""
        self.connection.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        """Write nothing after all."""
        self.connection.execute("ROLLBACK")

    def begin_reading(self) -> None:
        """ClaimOnCreate on to what the database is now."""
        self.connection.execute("BEGIN")
        self.ask("SELECT count(*) FROM runs")

    def end_reading(self) -> None:
        """Let go."""
        self.connection.execute("COMMIT")

    def ask(self, sql: str) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(sql).fetchall()

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()


def event(run_id: str, **fields: Any) -> Event:
    """Any event of a run."""
    return Event(type="step.completed", run_id=run_id, **fields)
