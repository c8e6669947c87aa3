"""TransactionStore: the store on a transaction of the user's, committed with the user's data or not at all.

Its functions run on the user's connection. Each write is a savepoint: a refusal or an error leaves the
transaction as it was. The first write takes the writer's lock, as BEGIN IMMEDIATE would have; from then
on all other writers of the file wait until the transaction ends. Waiters in other processes see the
commit by themselves (notifier.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from outlast.errors import Busy, InvalidValue, QueueClosed, StoreClosed, Unsupported, WorkflowMisuse
from outlast.ports.notifier import LocalNotifier
from outlast.ports.store import Store
from outlast.stores.sqlite.connection import Connection, PrefixedConnection
from outlast.stores.sqlite.connection_worker import Work
from outlast.stores.sqlite.database import Database
from outlast.stores.sqlite.driver_errors import translate
from outlast.stores.sqlite.queue import SqliteQueue
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import Session
from outlast.stores.sqlite.store import SqliteStore

T = TypeVar("T")

TAKE_LOCK = query("take_lock")


class Borrow(Protocol):
    """Runs a function on the user's connection, inside the transaction, in the thread of the
    connection."""

    async def __call__(self, work: Work[T], /) -> T:
        """What the function returns."""
        ...


def on_connection(connection: Any) -> Borrow:
    """A `Borrow` for a connection of sqlite3 that is in a transaction."""
    if not connection.in_transaction:
        raise InvalidValue(
            "this connection is in no transaction: execute BEGIN IMMEDIATE before what is to be "
            "committed together"
        )

    async def borrow(work: Work[T], /) -> T:
        return work(connection)

    return borrow


class TransactionStore(SqliteStore):
    """What `SqliteStore.on` returns. It is open as long as the transaction is."""

    def __init__(self, store: SqliteStore, borrow: Borrow) -> None:
        Store.__init__(self, clock=store.clock)
        self.durability = store.durability
        self._borrow = borrow
        self._session = _BorrowedSession(store.database, StoreClosed, borrow=borrow)
        # No wake-ups: nothing can be seen before the commit.
        self.notifier = LocalNotifier()

    async def open(self) -> None:
        """It is open."""

    async def close(self) -> None:
        """The transaction ends it."""
        raise WorkflowMisuse("a store on your transaction ends with it: commit or roll back")

    def sibling(self) -> SqliteStore:
        raise Unsupported("a store on your transaction has nothing for other threads")

    def queue(self) -> SqliteQueue:
        session = _BorrowedSession(self.database, QueueClosed, borrow=self._borrow)
        return SqliteQueue(session, clock=self.clock, notifier=self.notifier)


class _BorrowedSession(Session):
    """Every call is a function on the user's connection."""

    def __init__(self, database: Database, closed: Any, *, borrow: Borrow) -> None:
        super().__init__(database, closed, borrowed=True)
        self._run = borrow

    async def open(self) -> None:
        """It is open."""

    async def close(self) -> None:
        """The transaction ends it."""

    async def read(self, work: Work[T], *, timeout: float | None, small: bool = True) -> T:
        return await self._run(self._prepared(work))

    async def write(self, work: Work[T], *, timeout: float | None, rows: int = 1) -> T:
        return await self._run(self._prepared(lambda db: _in_savepoint(db, work)))

    async def checkpoint(self, *, timeout: float | None) -> bool:
        return False

    def check_file(self, connection: Connection) -> None:
        """Nothing: the connection is the user's, and need not be on a file."""

    def _prepared(self, work: Work[T]) -> Callable[[Connection], T]:
        prefix, path = self.database.prefix, self.database.path

        def run(db: Connection) -> T:
            try:
                return work(PrefixedConnection(db, prefix) if prefix else db)
            except Exception as error:
                raise _explained(error, path) from error

        return run


def _explained(error: Exception, path: Path) -> Exception:
    translated = translate(error, path)
    if isinstance(translated, Busy):
        return Busy(
            f"{translated}. Your transaction has read before another connection wrote: roll it back and try "
            "again, and start it with BEGIN IMMEDIATE or with a write"
        )
    return translated or error


def _in_savepoint(db: Connection, work: Work[T]) -> T:
    """Run a function in a savepoint."""
    db.execute("SAVEPOINT outlast")
    try:
        db.execute(TAKE_LOCK)
        result = work(db)
    except BaseException:
        db.execute("ROLLBACK TO outlast")
        db.execute("RELEASE outlast")
        raise
    db.execute("RELEASE outlast")
    return result
