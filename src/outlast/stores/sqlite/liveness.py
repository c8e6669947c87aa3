"""Liveness of owners: a takeover need not wait for lease expiry when the kernel shows that a process died.

::

    claim as "w-1" ──▶ an exclusive lock (flock) on a file of this process, <database>-workers/<nonce>, and then
                       a row in `owners`
    kill -9        ──▶ the kernel releases the lock
    other process  ──▶ finds the row when it starts, and checks twice a second: if the lock is free, the owner is
                       dead, and its leases are ended

A free lock proves a death only where all processes see the same locks: the row has the same boot id as the checking
process, the file is the very inode that the owner has locked, and its filesystem is local. Otherwise, and where
there is no flock, only the lease counts. Process ids are never compared: they are reused, and differ between
containers. A process that is stopped, or too busy to renew, holds its lock.

Forked children close the file and never unlock it; step processes inherit it, so that an owner is dead only when
its step processes are.

A lease is ended early once per commit: a run whose owner dies again before the next one, as when its code kills the
process, waits for lease expiry from then on. It is claimed with few others of its kind, first 1, then 2, 4 …, so that
one that kills takes few along.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from outlast.model.times import to_micros
from outlast.ports.clock import Clock, SystemClock
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.location import filesystem_of, read_mounts
from outlast.stores.sqlite.rows import text
from outlast.stores.sqlite.schema import query

if os.name == "posix":
    import fcntl

LOAD_OWNERS = query("load_owners")
PUT_OWNER = query("put_owner")
MARK_GONE = query("mark_gone")
DELETE_OWNER = query("delete_owner")
FORGET_OWNERS = query("forget_owners")
FORGET_DEATHS = query("forget_deaths")
RECORD_DEATHS = query("record_deaths")
FIND_SUSPECTS = query("find_suspects")
END_RUN_LEASES = query("end_run_leases")
END_TASK_LEASES = query("end_task_leases")

CHECK_INTERVAL_S = 0.5
KEPT = timedelta(hours=1)
"""How long the row of a dead owner is kept, for lists of workers."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LOCAL = frozenset(
    {
        "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "overlay", "ramfs", "reiserfs", "tmpfs",
        "xfs", "zfs",
    }
)  # fmt: skip
"""Filesystems whose locks all processes of the machine see."""


class Owner(NamedTuple):
    """An owner and the lock file of its process: a row of `owners`."""

    owner: str
    nonce: str
    boot: str
    device: str
    inode: str
    gone_at: int | None
    """When its leases were ended."""


class Liveness:
    """The lock of this process for one database, and the check of the locks of other processes. `folder` has the
    lock files."""

    def __init__(
        self,
        path: Path,
        *,
        boot_id: Callable[[], str] | None = None,
        filesystem: Callable[[Path], str] | None = None,
    ) -> None:
        self.folder = path.with_name(f"{path.name}-workers")
        self._boot_id = boot_id or _boot_id
        self._filesystem = filesystem or _filesystem
        self._lock: int | None = None
        self._nonce = ""
        self._registered: set[str] = set()
        self._others: list[Owner] = []
        self._checked_at = -CHECK_INTERVAL_S
        self._found_dead = False
        self._suspects_at_once = 1
        self._refusal = ""

    @cached_property
    def _boot(self) -> str:
        """The id of this boot of the machine; empty if a free lock proves nothing here."""
        return (
            self._boot_id() if os.name == "posix" and self._filesystem(self.folder) in LOCAL else ""
        )

    @property
    def unsupported(self) -> str:
        """Why only leases count here; empty if the death of a process is detected."""
        if self._refusal or self._boot:
            return self._refusal
        return "the system or the filesystem does not show reliably whether a process holds a lock"

    # -- this process -------------------------------------------------------------------------

    def is_registered(self, owner: str, clock: Clock) -> bool:
        """Whether there is nothing to do for `owner`: it is registered, or cannot be. With a clock of a test no process
        is judged by real locks."""
        return (
            owner in self._registered
            or bool(self.unsupported)
            or not isinstance(clock, SystemClock)
        )

    def register(self, connection: Connection, owner: str, now: datetime) -> None:
        """Other processes detect the death of this one as that of `owner` from now on. Before that the leases of a dead
        process with the same name are ended: afterwards they would look like this one's."""
        self.end_leases(connection, now)
        if self._lock is None:
            self._take_lock()
        if self._lock is not None:
            status = os.fstat(self._lock)
            values = (owner, self._nonce, self._boot, str(status.st_dev), str(status.st_ino))
            connection.execute(PUT_OWNER, values)

    def registered(self, owner: str) -> None:
        """The transaction of `register` is committed."""
        if self._lock is not None:
            self._registered.add(owner)

    def _take_lock(self) -> None:
        """Lock a new file, or note why that is impossible."""
        self._nonce = os.urandom(16).hex()
        try:
            self._lock = _locked_file(self.folder, self._nonce)
        except OSError as error:
            self._refusal = f"{self.folder} cannot be used: {error.strerror}"

    @property
    def files(self) -> tuple[int, ...]:
        """The descriptor that step processes inherit."""
        return () if self._lock is None else (self._lock,)

    def close(self) -> None:
        """Delete the lock file, without which the row proves nothing: a process that closes has not crashed.
        Idempotent."""
        if self._lock is not None:
            with suppress(OSError):
                (self.folder / self._nonce).unlink()
            with suppress(OSError):
                self.folder.rmdir()  # the last one
        self.abandon()

    def abandon(self) -> None:
        """Close the file and keep its lock, which belongs to the parent if this is a forked child."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None
        self._registered.clear()
        self._others = []

    # -- other processes ----------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether the other processes were not checked for a while, or one has died. False in a process that has not
        registered."""
        waited_s = time.monotonic() - self._checked_at
        return bool(self._registered) and (self._found_dead or waited_s >= CHECK_INTERVAL_S)

    def load(self, connection: Connection) -> list[Owner]:
        """Read who the other owners are; those that are dead."""
        self._checked_at, self._found_dead = time.monotonic(), False
        self._others = []
        for owner in _owners(connection):
            if owner.gone_at is not None:
                (self.folder / owner.nonce).unlink(missing_ok=True)
            elif owner.nonce != self._nonce:
                self._others.append(owner)
        return self._dead()

    def has_dead(self) -> bool:
        """Whether one of the owners that were read last has died. It asks the kernel only."""
        if not self._others or time.monotonic() - self._checked_at < CHECK_INTERVAL_S:
            return False
        self._checked_at = time.monotonic()
        self._found_dead = bool(self._dead())  # the poll that follows ends its leases
        return self._found_dead

    def is_gone(self, connection: Connection, owner: str) -> bool:
        """Whether every process that has registered as `owner` is dead."""
        found = [one for one in _owners(connection) if one.owner == owner]
        return bool(found) and all(one.gone_at or self._is_dead(one) for one in found)

    def end_leases(self, connection: Connection, now: datetime) -> list[str]:
        """End the leases of dead owners, in a transaction of the writer; who they are. Their claims are as after lease
        expiry: another process may take them over, and until then they stay valid."""
        dead = self.load(connection)
        alive = {owner.owner for owner in self._others if owner not in dead} | self._registered
        gone = sorted({owner.owner for owner in dead} - alive)
        connection.execute(FORGET_OWNERS, (to_micros(now - KEPT),))
        for name in gone:
            values = {"owner": name, "now": to_micros(now)}
            connection.execute(FORGET_DEATHS)
            connection.execute(END_RUN_LEASES, values)
            connection.execute(END_TASK_LEASES, values)
            connection.execute(RECORD_DEATHS, values)
        for owner in self._others:
            if owner in dead:
                connection.execute(MARK_GONE, (to_micros(now), owner.owner, owner.nonce))
            elif not (self.folder / owner.nonce).exists():  # it has closed
                connection.execute(DELETE_OWNER, (owner.owner, owner.nonce))
        return gone

    def without_suspects(self, connection: Connection, keys: list[int]) -> list[int]:
        """The runs to claim of those found: of the runs whose owners have died twice without a commit, only some at
        once. Each claim that this process survives allows twice as many."""
        if not self._registered:
            return keys
        suspects = {key for (key,) in connection.execute(FIND_SUSPECTS, (text(keys),)).fetchall()}
        if not suspects:
            return keys
        allowed = [key for key in keys if key in suspects][: self._suspects_at_once]
        self._suspects_at_once *= 2
        return [key for key in keys if key not in suspects or key in allowed]

    def _dead(self) -> list[Owner]:
        return [owner for owner in self._others if self._is_dead(owner)]

    def _is_dead(self, owner: Owner) -> bool:
        is_here = bool(self._boot) and owner.boot == self._boot and owner.nonce != self._nonce
        return is_here and _is_free(self.folder / owner.nonce, owner)


def _owners(connection: Connection) -> list[Owner]:
    return [Owner._make(row) for row in connection.execute(LOAD_OWNERS).fetchall()]


def _locked_file(folder: Path, name: str) -> int:
    for _ in range(10):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(folder / name, flags, 0o600)
        except FileNotFoundError:
            continue  # another process has removed the empty folder
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    raise FileNotFoundError(2, "it is removed again and again", str(folder))


def _is_free(path: Path, owner: Owner) -> bool:
    """Whether the lock on the file that `owner` has locked is free. A file that is missing, or another one, proves
    nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        if (str(status.st_dev), str(status.st_ino)) != (owner.device, owner.inode):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)  # this releases the shared lock
    return True


def _filesystem(path: Path) -> str:
    return filesystem_of(path, read_mounts())


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
