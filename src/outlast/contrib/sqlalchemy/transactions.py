"""A session of the user's from BEGIN to COMMIT, in a loop or in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from outlast.contrib.sqlalchemy.binding import Binding
from outlast.ports.notifier import Notifier


@asynccontextmanager
async def session_of(binding: Binding) -> AsyncIterator[Any]:
    """A session that is committed at the end of the context, and rolled back if that is an error."""
    session = binding.session()
    if isinstance(session, AsyncSession):
        async with session, session.begin():
            yield session
        return
    # A plain step runs there too: what ends the session waits for it, also if nobody else does any more.
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
        session.close()  # and with it what was not committed


def ring_after(transaction: Any, notifier: Notifier) -> None:
    """Let those who wait look again when a session has committed."""
    session = transaction.sync_session if isinstance(transaction, AsyncSession) else transaction
    if isinstance(session, Session):
        session.info.setdefault(WAITING, set()).add(notifier)
        # One listener, however often: SQLAlchemy forgets none as long as the session lives.
        if not event.contains(session, "after_commit", _ring):
            event.listen(session, "after_commit", _ring)


def _ring(session: Session) -> None:
    if not session.in_nested_transaction():  # the end of a savepoint is seen by nobody else
        for notifier in session.info.pop(WAITING, ()):
            notifier.ring()


WAITING = "outlast.waiting"


async def settle(transaction: Any) -> None:
    """Write what a session has gathered, so that what is wrong with it shows before the COMMIT."""
    if isinstance(transaction, AsyncSession):
        await transaction.flush()
    elif isinstance(transaction, Session):
        await asyncio.to_thread(transaction.flush)
