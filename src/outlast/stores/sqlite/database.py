"""Database: the file of a store and its queues, opened once for all of them.

Four connections: one writes, one does small reads, one does large reads, so that a dashboard holds no
other call up, and one checkpoints the log (wal.py). None survives a fork: a child would share locks and
file positions with its parent, so calls in a child are refused.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

from outlast.errors import InvalidValue, StoreClosed, StoreFault, UnsafeStorage
from outlast.stores.sqlite import schema
from outlast.stores.sqlite.connection import (
    Connect,
    Connection,
    PrefixedConnection,
    Synchronous,
    check_prefix,
    configure,
    connect,
    scalar,
)
from outlast.stores.sqlite.connection_worker import ConnectionWorker, pauses
from outlast.stores.sqlite.driver_errors import is_busy, translate
from outlast.stores.sqlite.liveness import Liveness
from outlast.stores.sqlite.location import (
    check_leftover_log,
    check_storage,
    identity_of,
    parse_location,
    prepare_file,
    read_mounts,
)
from outlast.stores.sqlite.wal import (
    LOG_HARD_LIMIT_BYTES,
    LOG_LIMIT_BYTES,
    WriteAheadLog,
    has_reset_race,
)
from outlast.stores.sqlite.writer import Writer

T = TypeVar("T")

UNKNOWN_ROWS = 1_000_000
"""For a write of an unknown number of rows: never in the event loop."""

WRITER_CACHE_KIB, READER_CACHE_KIB = 32 * 1024, 8 * 1024  # filled as needed
OPEN_TIMEOUT_S = 60.0
OLDEST = (3, 24)  # upsert


class Connections(NamedTuple):
    """The connections to an open file, and the process that opened them."""

    writer: Writer
    reader: ConnectionWorker
    searcher: ConnectionWorker
    log: WriteAheadLog
    sqlite: str
    pid: int


class Database:
    """Reads and writes for all stores and queues on the file in this process. Thread-safe."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "full",
        inline: bool = True,
        network_storage: bool = False,
        log_limit: int = LOG_LIMIT_BYTES,
        log_hard_limit: int = LOG_HARD_LIMIT_BYTES,
        connect: Connect = connect,
        prefix: str = "",
    ) -> None:
        if synchronous not in ("full", "normal"):
            raise InvalidValue(f"synchronous={synchronous!r}: use 'full' or 'normal'")
        if not 0 < log_limit <= log_hard_limit:
            raise InvalidValue(
                f"log_limit={log_limit} and log_hard_limit={log_hard_limit}: use a positive log_limit, "
                "and a log_hard_limit that is not smaller"
            )
        self.path = parse_location(location)
        self.where = str(self.path)
        self.prefix = check_prefix(prefix)
        self.synchronous: Synchronous = synchronous
        self._connect = connect
        self._network_storage = network_storage
        self.inline = inline
        self.liveness = Liveness(self.path)
        self._limits = (log_limit, log_hard_limit)
        self._opening = threading.Lock()
        self._users: set[object] = set()
        self._state: Connections | None = None
        self.was_open = False

    # -- life ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a session has it open now."""
        return self._state is not None

    async def open(self, user: object) -> None:
        """Open the file for `user`, unless it is open. Idempotent."""
        await asyncio.to_thread(self._open, user)

    async def close(self, user: object) -> None:
        """Close the file if `user` is the last one."""
        if self._state is not None and self._state.pid != os.getpid():
            self._users.discard(user)  # a thread of the parent may hold the lock
            self._state = self._state if self._users else None  # see _keep_inherited
        elif user in self._users:
            await asyncio.to_thread(self._close, user)

    def describe(self) -> dict[str, object]:
        """Versions, modes and sizes, for operators."""
        state = self.opened()
        return {
            "path": str(self.path),
            "prefix": self.prefix,
            "sqlite_version": state.sqlite,
            "wal_reset_race": has_reset_race(state.sqlite),
            "journal_mode": "wal",
            "synchronous": self.synchronous,
            "wal_bytes": state.log.size,
            "checkpoints": state.log.checkpoints,
            "schema_version": schema.latest(),
            "liveness": self.liveness.unsupported or "by a lock file",
            "milliseconds_per_commit": round(state.writer.pace * 1000, 3),
        }

    # -- calls --------------------------------------------------------------------------------

    def foreign_version(self) -> int | None:
        """A number that changes when another process writes; None if it cannot be read now."""
        state = self._state
        return None if state is None or state.pid != os.getpid() else state.writer.foreign_version()

    def opened(self) -> Connections:
        """The connections; raises if the file is closed, or was opened before a fork."""
        state = self._state
        if state is None:
            raise StoreClosed(f"the store at {self.path} is closed: open it first")
        if state.pid != os.getpid():
            raise StoreClosed(
                f"the store at {self.path} was opened before this process was forked, and SQLite "
                "connections do not survive that: open stores and apps after the fork, not before"
            )
        return state

    # -- opening ------------------------------------------------------------------------------

    def _open(self, user: object) -> None:
        with self._opening:
            if self._state is None:
                self._state = self._connect_all()
                _alive.add(self)
            self._users.add(user)

    def _close(self, user: object) -> None:
        with self._opening:
            state = self._state
            self._users.discard(user)
            if state is None or self._users:
                return
            self._state = None
            self.was_open = True
            _alive.discard(self)
            state.reader.close()
            state.searcher.close()
            state.writer.close()
            self.liveness.close()

    def _connect_all(self) -> Connections:
        if not self._network_storage:
            check_storage(self.path, read_mounts())
        check_leftover_log(self.path)
        prepare_file(self.path)
        if identity_of(self.path) in _inherited_files:
            raise UnsafeStorage(
                f"{self.path} was open when this process was forked, and SQLite's locks are not "
                "inherited: what this process commits could be lost. Open "
                "stores and apps after the fork, not before (gunicorn: without preload_app, or in "
                "post_fork), or start processes by 'spawn'"
            )
        with ExitStack() as on_failure:
            try:
                writer = self._connection(on_failure, WRITER_CACHE_KIB)
                sqlite = _check_version(writer)
                self._prepare(writer)
                reader = self._connection(on_failure, READER_CACHE_KIB)
                searcher = self._connection(on_failure, READER_CACHE_KIB)
                for connection in (reader, searcher):
                    connection.execute("PRAGMA query_only = 1").fetchall()
                checkpointer = self._connection(on_failure, 0)
            except Exception as error:
                fault = translate(error, self.path)
                if fault is None:
                    raise
                raise fault from error
            on_failure.pop_all()
        limit, hard_limit = self._limits
        log = WriteAheadLog(self.path, checkpointer, limit=limit, hard_limit=hard_limit)
        return Connections(
            Writer(writer, self.path, log),
            ConnectionWorker(reader, self.path, "reader"),
            ConnectionWorker(searcher, self.path, "searcher"),
            log,
            sqlite,
            os.getpid(),
        )

    def _connection(self, on_failure: ExitStack, cache: int) -> Connection:
        connection = self._connect(str(self.path))
        if self.prefix:
            connection = PrefixedConnection(connection, self.prefix)
        on_failure.callback(connection.close)
        _patiently(
            lambda: configure(
                connection,
                synchronous=self.synchronous,
                log_limit=self._limits[0],
                cache_kib=cache,
                trusted=bool(self.prefix),
            )
        )
        return connection

    def _prepare(self, connection: Connection) -> None:
        """Bring the schema up to date, waiting for processes that do the same."""
        _patiently(lambda: schema.migrate(connection, self.path, prefix=self.prefix))
        mode = _patiently(lambda: scalar(connection, "PRAGMA journal_mode"))
        if mode != "wal":
            raise UnsafeStorage(
                f"{self.path} stays in journal mode {mode!r} where WAL is needed: the filesystem "
                "has no shared memory; use a local disk"
            )
        self._check_writable(connection)

    def _check_writable(self, connection: Connection) -> None:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except Exception as error:
            if is_busy(error):
                return  # another connection is writing, so the file is writable
            raise
        try:
            # BEGIN IMMEDIATE succeeds on a read-only database; a write does not.
            connection.execute(f"PRAGMA user_version = {schema.latest()}")
        finally:
            connection.execute("ROLLBACK")


def _patiently(act: Callable[[], T]) -> T:
    """Run `act`, waiting for the lock of a process that changes the schema, or that recovers the log
    after a crash."""
    deadline = time.monotonic() + OPEN_TIMEOUT_S
    for pause in pauses():
        try:
            return act()
        except Exception as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
        threading.Event().wait(pause)
    raise AssertionError("pauses have no end")


def _check_version(connection: Connection) -> str:
    version = str(scalar(connection, "SELECT sqlite_version()"))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise StoreFault(f"SQLite {version} is too old: 3.24 or later is needed")
    return version


_alive: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[object] = []
_inherited_files: set[object] = set()


def _keep_inherited() -> None:
    # A connection that is finalised in a child would delete files of the parent: keep references.
    # SQLite keeps its state of a file for the whole process: a new connection to the same file would
    # rely on locks that only the parent has, and the parent would checkpoint the log meanwhile.
    _inherited.extend(database._state for database in _alive)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    _inherited_files.update(identity_of(database.path) for database in _alive)
    _inherited_files.discard(None)
    for database in _alive:
        database.liveness.abandon()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_keep_inherited)
