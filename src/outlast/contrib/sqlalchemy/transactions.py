"""Joins transactions of SQLAlchemy: sessions from BEGIN to COMMIT, in a loop or in threads, and the store inside."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from outlast.contrib.sqlalchemy.store import Binding, Transaction
from outlast.errors import InvalidValue
from outlast.ports.notifier import Notifier
from outlast.ports.store import Store

S = TypeVar("S", bound=Store)


class JoiningStore(Store, Generic[S]):
    """A mixin for stores on an engine: joins its transactions. Inside of one the store is an `S`."""

    binding: Binding
    _limiter: TransactionLimiter

    def bind(self, binding: Binding) -> None:
        """Set the engine."""
        self.binding = binding
        self.plain_transactions = binding.loops is None
        self._limiter = TransactionLimiter(binding)

    async def close(self) -> None:
        await super().close()
        self._limiter.end()

    def on(self, connection: Any) -> S:
        """This store inside the transaction of a Session, AsyncSession or connection: starts, signals and tasks
        are committed or rolled back with your own data."""
        transaction = joinable(connection)
        wake_after_commit(transaction, self.notifier)
        return self._inside(transaction)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        await self.open()
        async with self._limiter.session() as session:
            yield session, self.on(session)

    @abstractmethod
    def _inside(self, transaction: Transaction) -> S:
        """A store that writes only in that transaction."""


class TransactionLimiter:
    """Limits how many steps have an open transaction at once; see `Binding.room`."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._free: asyncio.Semaphore | None = None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """A session, as soon as the limit allows; see `session_of`."""
        if self._free is None:
            room = self._binding.room
            if room < 1:
                raise InvalidValue(
                    "the engine has one connection, which a transactional step would occupy while the lease "
                    "of its run must be renewed: use a pool_size of 2 or more"
                )
            self._free = asyncio.Semaphore(room)
        async with self._free, session_of(self._binding) as session:
            yield session

    def end(self) -> None:
        """Reset, because the next loop may be another one."""
        self._free = None


@asynccontextmanager
async def session_of(binding: Binding) -> AsyncIterator[Any]:
    """A session that is committed at the end of the context, or rolled back on an error."""
    session = binding.session()
    if isinstance(session, AsyncSession):
        async with session, session.begin():
            yield session
        return
    # A plain step runs in the same thread, so the end of the session waits for it, also after a cancellation.
    threads = session.threads = ThreadPoolExecutor(1, "outlast-transaction")
    loop = asyncio.get_running_loop()
    try:
        yield session
    except BaseException:
        await asyncio.shield(loop.run_in_executor(threads, _end, session, False))
        raise
    else:
        await asyncio.shield(loop.run_in_executor(threads, _end, session, True))
    finally:
        threads.shutdown(wait=False)


def _end(session: Session, keep: bool) -> None:
    try:
        if keep:
            session.commit()
    finally:
        session.close()  # rolls back


def joinable(transaction: Any) -> Any:
    """The session or connection whose transaction is joined; raises for other objects. Of a scoped session,
    the caller's session: the thread that uses it would otherwise get another one."""
    if isinstance(transaction, (scoped_session, async_scoped_session)):
        transaction = transaction()
    if isinstance(transaction, (Session, AsyncSession)):
        return transaction
    if isinstance(transaction, (Connection, AsyncConnection)):
        if transaction.closed:
            raise InvalidValue("this connection is closed: use an open one")
        return transaction
    raise InvalidValue(
        f"{type(transaction).__name__} has no transaction: pass a Session, an AsyncSession, or a "
        "connection of the engine"
    )


def connection_of(transaction: Any) -> Connection:
    """The connection of a session; this begins its transaction."""
    if isinstance(transaction, Connection):
        if not transaction.in_transaction():
            transaction.begin()
        return transaction
    found: Connection = transaction.connection()
    return found


def wake_after_commit(transaction: Any, notifier: Notifier) -> None:
    """Wake waiters when a session has committed."""
    session = transaction.sync_session if isinstance(transaction, AsyncSession) else transaction
    if isinstance(session, Session):
        session.info.setdefault(WAITING, set()).add(notifier)
        # At most one listener: SQLAlchemy keeps it as long as the session exists.
        if not event.contains(session, "after_commit", _wake):
            event.listen(session, "after_commit", _wake)


def _wake(session: Session) -> None:
    if not session.in_nested_transaction():  # the end of a savepoint is not visible to others
        for notifier in session.info.pop(WAITING, ()):
            notifier.wake()


WAITING = "outlast.waiting"


async def flush(transaction: Any) -> None:
    """Flush a session, so that an invalid change raises before the COMMIT."""
    if isinstance(transaction, AsyncSession):
        await transaction.flush()
    elif isinstance(transaction, Session):
        await asyncio.to_thread(transaction.flush)
