"""Foreign errors, mapped to outlast's own in this one place.

What happened is told by the server's SQLSTATE; the message is for people. Whether a write that
failed may have happened is told by when it failed: a server that answers with an error has rolled
back, a connection that ends before the answer leaves it open. asyncpg's errors are known by class;
psycopg's by the state and by the names that all Python drivers share, so that it need not be there.
"""

from __future__ import annotations

import asyncpg

from outlast.errors import (
    Busy,
    InvalidValue,
    NotAStore,
    OutlastError,
    PayloadTooLarge,
    ReadOnlyStore,
    StoreFault,
    StoreFull,
    TimedOut,
    Unavailable,
    Undecodable,
    UnknownOutcome,
)

BUSY = {
    "40001",  # serialization_failure
    "40P01",  # deadlock_detected
    "55P03",  # lock_not_available
    "57014",  # query_canceled: an administrator, or statement_timeout
}
AWAY = {
    "53300": "it has no connection left: raise max_connections, lower pool_size, or use a pooler",
    "57P03": "it is starting or stopping",
    "53400": "a limit of its configuration is reached",
    "53200": "it is out of memory, or of locks: raise max_locks_per_transaction, commit less at once",
}
# The server ends the connection with these: a write under way may or may not have been done.
ENDED = {"57P01", "57P02", "57P05", "25P03"}
LOGIN = {
    "28P01": "the password is wrong: check the one in the URL",
    "28000": "this user may not log in: check the user in the URL, and pg_hba.conf",
    "42501": "this user may not do that: grant it the right, or use the owner of the tables",
}
READ_ONLY = {"25006"}
FULL = {"53100", "53000"}
DAMAGED = {"XX001", "XX002"}
TOO_LARGE = {"54000"}


def translate(error: BaseException, where: str, *, sent: bool, writes: bool) -> Exception | None:
    """What `error` means to a caller, or None if it is not the database's.

    `sent` says that a connection was there, so that the statement may have reached the server.
    """
    if isinstance(error, OutlastError):
        return None
    if isinstance(error, TimeoutError):  # an OSError, too
        if sent and writes:
            return UnknownOutcome(f"{where} did not answer in time: it may have been done")
        return TimedOut(f"{where} did not answer in time: nothing was written")
    if isinstance(error, (asyncpg.PostgresConnectionError, *_LOST)):
        return _lost(error, where, sent=sent, writes=writes)
    if isinstance(error, asyncpg.PostgresError):
        return _by_state(error, where, sent=sent, writes=writes)
    if isinstance(error, (asyncpg.DataError, OverflowError, UnicodeEncodeError)):
        return InvalidValue(
            f"a value cannot be stored: {error}. Numbers have 64 bits and text has no surrogates"
        )
    if isinstance(error, asyncpg.InterfaceError):
        return _lost(error, where, sent=sent, writes=writes)
    return _by_name(error, where, sent=sent, writes=writes)


def _by_name(error: BaseException, where: str, *, sent: bool, writes: bool) -> Exception | None:
    """The same for a driver that keeps to DB-API."""
    names = _names(error)
    if "Error" not in names:
        return None
    if isinstance(getattr(error, "sqlstate", None), str):
        return _by_state(error, where, sent=sent, writes=writes)
    if names & {"DataError", "ProgrammingError", "NotSupportedError"}:
        return InvalidValue(f"a value cannot be stored: {error}")
    return _lost(error, where, sent=sent, writes=writes)


def _names(error: BaseException) -> set[str]:
    """The classes of a psycopg error; nothing of another's."""
    if not type(error).__module__.startswith("psycopg"):
        return set()
    return {kind.__name__ for kind in type(error).__mro__}


_LOST = (
    OSError,
    EOFError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.InternalClientError,
)


def is_lost(error: BaseException) -> bool:
    """Whether the connection has ended, so that a read may be tried on another."""
    state = getattr(error, "sqlstate", None)
    if state in ENDED:
        return True
    if names := _names(error):
        return state is None and bool(names & {"OperationalError", "InterfaceError"})
    return isinstance(error, (asyncpg.PostgresConnectionError, *_LOST)) and not isinstance(
        error, TimeoutError
    )


def _lost(error: BaseException, where: str, *, sent: bool, writes: bool) -> Exception:
    if sent and writes:
        return UnknownOutcome(
            f"the connection to {where} ended before the answer came ({_short(error)}): "
            "it may have been done"
        )
    return Unavailable(
        f"{where} cannot be reached ({_short(error)}): check host and port, and that it runs"
    )


def _by_state(error: BaseException, where: str, *, sent: bool, writes: bool) -> Exception:
    state: str = getattr(error, "sqlstate", None) or ""
    said = _short(error)
    if state in ENDED:
        return _lost(error, where, sent=sent, writes=writes)
    if state in BUSY:
        return Busy(f"somebody else was in the way at {where} ({said}). Nothing was written")
    if state == "23505":
        if _constraint(error).endswith("runs_id"):
            return Busy(f"somebody else has begun that run at {where} meanwhile ({said})")
        return Undecodable(f"the tables at {where} contradict each other ({said})")
    if state in AWAY:
        return Unavailable(f"{where} takes no more work now ({said}): {AWAY[state]}")
    if state in LOGIN:
        return StoreFault(f"{where} refused ({said}): {LOGIN[state]}")
    if state == "3D000":
        return NotAStore(f"{where} is not there ({said}): create the database, or check the URL")
    if state in READ_ONLY:
        return ReadOnlyStore(
            f"{where} cannot be written ({said}): it is a standby, or default_transaction_read_only "
            "is on; use the primary (target_session_attrs=read-write in the URL)"
        )
    if state in FULL:
        return StoreFull(
            f"no space is left at {where} ({said}). Nothing of this write remains; free some space "
            "and go on"
        )
    if state in DAMAGED:
        return Undecodable(f"{where} is damaged ({said}): stop writing, and restore a backup")
    if state in TOO_LARGE:
        return PayloadTooLarge(
            f"a value is larger than {where} can hold or index ({said}): shorten the name of the "
            "workflow, or the value"
        )
    if state.startswith("22"):
        return InvalidValue(f"a value cannot be stored at {where} ({said})")
    if state.startswith("08"):
        return _lost(error, where, sent=sent, writes=writes)
    return StoreFault(f"PostgreSQL failed at {where}: {said} (code {state})")


def _constraint(error: BaseException) -> str:
    told = getattr(error, "diag", error)
    return str(getattr(told, "constraint_name", ""))


def _short(error: BaseException) -> str:
    """The first line of a message: what follows may quote data."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
