"""Errors of redis-py, mapped to outlast's errors.

An error reply means that nothing was written: scripts decide before they write, and Redis rejects a script for
lack of memory, disk or permission at its first write. Without a reply the outcome of a write is unknown.
"""

from __future__ import annotations

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import TimeoutError as SlowConnection

from outlast.errors import (
    Busy,
    OutlastError,
    ReadOnlyStore,
    StoreFault,
    StoreFull,
    TimedOut,
    TryAgain,
    Undecodable,
    UnknownOutcome,
    UnsafeStorage,
)

_FULL = ("OOM", "MISCONF")
_LATER = ("LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS")


def translate(error: BaseException, where: str, *, unknown: bool) -> OutlastError | None:
    """The outlast error for `error`, or None if it does not come from Redis. `unknown`: a write may have reached the
    server."""
    if isinstance(error, BusyLoadingError):
        return Busy(f"Redis at {where} is loading its data: nothing was written, try again soon")
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return _denied(where)
    if isinstance(error, ResponseError):
        return _by_answer(str(error), where)
    text = str(error)
    if isinstance(error, LostConnection) and "max number of clients" in text:
        return Busy(f"Redis at {where} has no connection left (maxclients): nothing was written")
    if isinstance(error, LostConnection) and _is_denial(text):
        return _denied(where)
    if isinstance(error, TimeoutError | SlowConnection):
        if unknown:
            return UnknownOutcome(f"Redis at {where} did not answer in time: it may have happened")
        return TimedOut(f"Redis at {where} did not answer in time: nothing was written")
    if isinstance(error, (LostConnection, OSError)):
        if unknown:
            return UnknownOutcome(f"the connection to {where} broke: it may have happened")
        return TryAgain(f"Redis at {where} cannot be reached: nothing was written")
    if isinstance(error, RedisError):
        return StoreFault(f"Redis at {where} failed: {type(error).__name__}")
    return None


def _by_answer(message: str, where: str) -> OutlastError:
    # Some drivers cut the word in front, which is the error's code, off some errors.
    word = message.split(" ", 1)[0].strip()
    if word in _FULL or "used memory >" in message:
        return StoreFull(
            f"Redis at {where} has no room ({message}). Nothing of this write remains; raise "
            "maxmemory or free some space, and go on"
        )
    if word == "READONLY" or "read only replica" in message:
        return ReadOnlyStore(
            f"Redis at {where} is a replica and cannot be written ({message}): connect to the "
            "primary, or through Sentinel"
        )
    if word == "GONE" or "is not what was opened" in message:
        return UnsafeStorage(
            f"the data of this store at {where} is gone: it was flushed, or another server answers now. "
            "Nothing was written. End all workers, bring the data back, and start them again; or "
            "start them again to begin with an empty store"
        )
    if word in _LATER or "loading the dataset" in message:
        return Busy(f"Redis at {where} cannot answer now ({message}): nothing was written")
    if _is_denial(message) or word == "NOPERM":
        return _denied(where)
    if "WRONGTYPE" in message:  # Redis 6.2 tells of the script first
        return Undecodable(
            f"a key of the store at {where} is not of its type: something else writes under the "
            "same prefix; choose another"
        )
    return StoreFault(f"Redis at {where} failed: {message}")


def _is_denial(message: str) -> bool:
    words = ("NOAUTH", "WRONGPASS", "invalid password", "invalid username", "Authentication")
    return any(word in message for word in words)


def _denied(where: str) -> StoreFault:
    return StoreFault(
        f"Redis at {where} does not let us in: check user name, password and the rights of the user"
    )
