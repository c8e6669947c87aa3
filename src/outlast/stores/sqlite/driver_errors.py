"""Errors of SQLite, mapped to those of `outlast.errors` in this one place.

The mapping uses SQLite's result code, which sqlite3 and apsw attach to their errors under different
names.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from outlast.errors import (
    Busy,
    InvalidValue,
    NotAStore,
    OutlastError,
    PayloadTooLarge,
    ReadOnlyStore,
    StoreClosed,
    StoreFault,
    StoreFull,
    Undecodable,
)

BUSY, LOCKED, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, TOOBIG, CONSTRAINT, NOTADB = (
    5, 6, 8, 10, 11, 13, 14, 15, 18, 19, 26,
)  # fmt: skip
PERM, AUTH = 3, 23

_SPARE_BYTES = 64 * 1024
"""A disk with less than this free counts as full."""


class Collision(Undecodable):
    """A unique index refused a row. For events it means that an id is recorded already; in other
    tables it is damage."""


def translate(error: Exception, path: Path) -> Exception | None:
    """The error of outlast for `error`, or None if it does not come from the database."""
    if isinstance(error, OutlastError):
        return None
    code = _code(error)
    if code is not None:
        return _by_code(code, str(error), path)
    # No code: the driver refused the value before SQLite saw it.
    if isinstance(error, (OverflowError, UnicodeEncodeError)):
        return InvalidValue(
            f"a value cannot be stored: {error}. Numbers have 64 bits and text has no surrogates"
        )
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreClosed(f"the store at {path} is closed")
    if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
        return InvalidValue(f"a value cannot be stored: {error}")
    return None


def is_busy(error: Exception) -> bool:
    """Whether another connection holds a lock: the same statement may succeed later."""
    code = _code(error)
    return code is not None and code & 0xFF in (BUSY, LOCKED, PROTOCOL)


def is_harmless(error: Exception) -> bool:
    """Whether a COMMIT that failed with this has certainly written nothing."""
    code = _code(error)
    return code is not None and code & 0xFF in (BUSY, FULL)


def _code(error: Exception) -> int | None:
    for name in ("sqlite_errorcode", "extendedresult"):
        code = getattr(error, name, None)
        if isinstance(code, int):
            return code
    return None


def _by_code(code: int, message: str, path: Path) -> Exception:
    primary = code & 0xFF
    if primary in (BUSY, LOCKED, PROTOCOL):
        return Busy(f"another process is writing to {path} ({message})")
    if primary == CONSTRAINT:
        return Collision(f"the tables of {path} contradict each other ({message})")
    if primary == FULL or (primary == IOERR and _is_full(path)):
        return StoreFull(
            f"no space is left for {path} ({message}). Nothing of this write remains; "
            "free some space and go on"
        )
    if primary in (READONLY, PERM, AUTH) or (primary == CANTOPEN and not _is_writable(path)):
        return ReadOnlyStore(
            f"{path} cannot be written ({message}): check the permissions of the file and of its "
            "folder, where SQLite keeps its log, and that the filesystem is not read-only"
        )
    if primary == NOTADB:
        return NotAStore(f"{path} is not a SQLite database ({message}): check the path")
    if primary == CORRUPT:
        return Undecodable(
            f"{path} is damaged ({message}): stop writing to it, keep a copy with its -wal file, "
            "and restore a backup, or try the sqlite3 shell's .recover"
        )
    if primary == TOOBIG:
        return PayloadTooLarge(f"a value is larger than SQLite can hold ({message})")
    return StoreFault(f"SQLite failed on {path}: {message} (code {code})")


def _is_full(path: Path) -> bool:
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _SPARE_BYTES


def _is_writable(path: Path) -> bool:
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
