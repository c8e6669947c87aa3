"""Errors of the drivers, mapped to outlast's errors.

The SQLSTATE decides; messages are for people. When the error occurs decides whether a write may have happened:
a server that returns an error has rolled back, a connection that ends before the response leaves the outcome
unknown. asyncpg's errors are matched by class; psycopg's by SQLSTATE and by the class names of DB-API, so
that psycopg need not be installed.
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
UNAVAILABLE = {
    "53300": "it has no connection left: raise max_connections, lower pool_size, or use a pooler",
    "57P03": "it is starting or stopping",
    "53400": "a limit of its configuration is reached",
    "53200": "it is out of memory, or of locks: raise max_locks_per_transaction, commit less at once",
}
# The server closes the connection with these: the outcome of a write in flight is unknown.
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
    """The outlast error for `error`, or None if it does not come from the database.

    `sent`: the statement may have reached the server.
    """
    if isinstance(error, OutlastError):
        return None
    if isinstance(error, TimeoutError):  # an OSError, too
        if sent and writes:
            return UnknownOutcome(f"{where} did not respond in time: the write may have happened")
        return TimedOut(f"{where} did not respond in time: nothing was written")
    if isinstance(error, (asyncpg.PostgresConnectionError, *_LOST)):
        return _lost(error, where, sent=sent, writes=writes)
    if isinstance(error, asyncpg.PostgresError):
        return _by_state(error, where, sent=sent, writes=writes)
    if isinstance(error, (asyncpg.DataError, OverflowError, UnicodeEncodeError)):
        return InvalidValue(
            f"a value cannot be stored: {error}. Numbers have 64 bits, and text has no surrogates"
        )
    if isinstance(error, asyncpg.InterfaceError):
        return _lost(error, where, sent=sent, writes=writes)
    return _by_name(error, where, sent=sent, writes=writes)


def _by_name(error: BaseException, where: str, *, sent: bool, writes: bool) -> Exception | None:
    """The same for a DB-API driver."""
    names = _names(error)
    if "Error" not in names:
        return None
    if isinstance(getattr(error, "sqlstate", None), str):
        return _by_state(error, where, sent=sent, writes=writes)
    if names & {"DataError", "ProgrammingError", "NotSupportedError"}:
        return InvalidValue(f"a value cannot be stored: {error}")
    return _lost(error, where, sent=sent, writes=writes)


def _names(error: BaseException) -> set[str]:
    """The class names of a psycopg error; empty for other errors."""
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
    """Whether the connection has ended, so that a read may be retried on another."""
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
            f"the connection to {where} ended before the response ({_short(error)}): "
            "the write may have happened"
        )
    return Unavailable(
        f"{where} cannot be reached ({_short(error)}): check host and port, and that it runs"
    )


def _by_state(error: BaseException, where: str, *, sent: bool, writes: bool) -> Exception:
    state: str = getattr(error, "sqlstate", None) or ""
    message = _short(error)
    if state in ENDED:
        return _lost(error, where, sent=sent, writes=writes)
    if state in BUSY:
        return Busy(
            f"another transaction was in the way at {where} ({message}): nothing was written, retry"
        )
    if state == "23505":
        if _constraint(error).endswith("runs_id"):
            return Busy(f"another transaction has created that run at {where} ({message}): retry")
        return Undecodable(f"the tables at {where} contradict each other ({message})")
    if state in UNAVAILABLE:
        return Unavailable(f"{where} accepts no work now ({message}): {UNAVAILABLE[state]}")
    if state in LOGIN:
        return StoreFault(f"{where} refused ({message}): {LOGIN[state]}")
    if state == "3D000":
        return NotAStore(
            f"{where} does not exist ({message}): create the database, or check the URL"
        )
    if state in READ_ONLY:
        return ReadOnlyStore(
            f"{where} cannot be written ({message}): it is a standby, or default_transaction_read_only "
            "is on; use the primary (target_session_attrs=read-write in the URL)"
        )
    if state in FULL:
        return StoreFull(
            f"no space is left at {where} ({message}). Nothing was written; free some space "
            "and retry"
        )
    if state in DAMAGED:
        return Undecodable(f"{where} is damaged ({message}): stop writing, and restore a backup")
    if state in TOO_LARGE:
        return PayloadTooLarge(
            f"a value is larger than {where} can hold or index ({message}): shorten the name of the "
            "workflow, or the value"
        )
    if state.startswith("22"):
        return InvalidValue(f"a value cannot be stored at {where} ({message})")
    if state.startswith("08"):
        return _lost(error, where, sent=sent, writes=writes)
    return StoreFault(f"PostgreSQL failed at {where}: {message} (code {state})")


def _constraint(error: BaseException) -> str:
    diagnostics = getattr(error, "diag", error)
    return str(getattr(diagnostics, "constraint_name", ""))


def _short(error: BaseException) -> str:
    """The first line of a message: further lines may quote data."""
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
