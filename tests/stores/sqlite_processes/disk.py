"""A disk that can lose power, for SQLite by way of apsw's VFS layer.

All that SQLite does to its files is done, so that the store under test lives on, and written down::

    write a.db-wal 0 … │ write a.db-wal 32 … │ sync a.db-wal │ tick 4 │ write a.db 0 … │ …
                       └── power lost here? what was synced is there; of the rest, who knows

`Disk.crashes` walks over that record and tells for each moment what would be left. A write that was
not synced survives in sectors of 512 bytes, each by itself, so that later ones may be there and
earlier ones not; a sector may be torn; a file that grew may be long and hold zeros or junk where
the data never came; a new size, a new file or a deleted one may be forgotten. A sync is honest.
With the first sync of a new log or journal SQLite syncs the folder too, and the names in it are
safe from then on.

The files themselves lie in a folder in memory, and locks and shared memory are the usual ones, so
that several connections and threads work as ever. Nobody but apsw may open them meanwhile: another
SQLite in the same process would drop the locks of this one.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw

from outlast.stores.sqlite.connection import Connection

SECTOR = 512
Image = dict[str, bytes]
"""Files by the end of their names: what is left on the disk."""


class Did(NamedTuple):
    """One thing that was done to a file; a tick is a moment in the life of a client."""

    what: Literal["write", "truncate", "sync", "delete", "sync folder", "tick"]
    name: str = ""
    offset: int = 0  # or the new size
    data: bytes = b""


class Disk:
    """A folder, what it held at the beginning, and all that was done to it since."""

    def __init__(self, folder: Path, image: Image | None = None) -> None:
        self.folder = folder
        self.begun_with = image or {}
        self.record: list[Did] = []
        self.lock = threading.RLock()
        self._vfs = _Vfs(self)
        write_image(folder, self.begun_with)

    def connect(self, path: str) -> Connection:
        """A connection on this disk, for `SqliteStore(connect=…)`."""
        connection: Connection = apsw.Connection(path, vfs=self._vfs.name)
        return connection

    def note(self, did: Did) -> int:
        """Write down what was done; how much that makes."""
        with self.lock:
            self.record.append(did)
            return len(self.record)

    def moments(self) -> list[int]:
        """Where to cut: before each thing done to a file, and after the last."""
        return [n for n, did in enumerate(self.record) if did.what != "tick"] + [len(self.record)]

    def crashes(self, moments: list[int], seed: int) -> Iterator[tuple[int, Image]]:
        """What is left if the power fails at each of these moments, given in order."""
        files = {name: _File(data) for name, data in self.begun_with.items()}
        done = 0
        for moment in moments:
            for did in self.record[done:moment]:
                if did.what == "sync folder":
                    for file in files.values():
                        file.keep_name()
                elif did.what != "tick":
                    files.setdefault(did.name, _File(None)).take(did)
            done = moment
            chance = random.Random(seed << 32 | moment)
            left = {name: file.after_power_loss(chance) for name, file in sorted(files.items())}
            yield moment, {name: data for name, data in left.items() if data is not None}

    def close(self) -> None:
        """Give the VFS back. The connections are closed."""
        self._vfs.unregister()


def write_image(folder: Path, image: Image) -> None:
    """Make files of an image."""
    for name, data in image.items():
        folder.joinpath(name).write_bytes(data)


class _File:
    """One file: what is safe (None: not even its name), and what was done since the last sync."""

    def __init__(self, safe: bytes | None) -> None:
        self._safe = None if safe is None else bytearray(safe)
        self._pending: list[Did] = []

    def take(self, did: Did) -> None:
        """Something is done to it."""
        if did.what != "sync":
            self._pending.append(did)
            return
        for earlier in self._pending:
            self._safe = _done(self._safe, earlier)
        self._pending.clear()

    def keep_name(self) -> None:
        """Whether it is there, and which file it is, is safe; what is in it is not."""
        deleted = [n for n, did in enumerate(self._pending) if did.what == "delete"]
        if deleted:
            self._safe = None
            del self._pending[: deleted[-1] + 1]
        if self._pending and self._safe is None:
            self._safe = bytearray()

    def after_power_loss(self, chance: random.Random) -> bytes | None:
        """What is there when the power comes back."""
        data = None if self._safe is None else bytearray(self._safe)
        pending = self._pending
        if chance.random() < 0.2:  # a disk that keeps the order
            pending = pending[: chance.randint(0, len(pending))]
            share = 1.0
        else:
            share = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for did in pending:
            if did.what == "write":
                data = _half_written(data, did, share, chance)
            elif chance.random() < share:
                data = _done(data, did)
            elif did.what == "delete":
                break  # the old file is still there, and a new one of that name is not
        return None if data is None else bytes(data)


def _done(data: bytearray | None, did: Did) -> bytearray | None:
    if did.what == "delete":
        return None
    data = bytearray() if data is None else data
    if did.what == "truncate":
        del data[did.offset :]
        data.extend(bytes(did.offset - len(data)))
    elif did.what == "write":
        data.extend(bytes(max(0, did.offset - len(data))))
        data[did.offset : did.offset + len(did.data)] = did.data
    return data


def _half_written(
    data: bytearray | None, did: Did, share: float, chance: random.Random
) -> bytearray | None:
    at, end = did.offset, did.offset + len(did.data)
    while at < end:
        stop = min(end, (at // SECTOR + 1) * SECTOR)
        piece = did.data[at - did.offset : stop - did.offset]
        if chance.random() < share:
            if chance.random() < 0.05:
                piece = piece[: chance.randint(0, len(piece))]  # torn
            data = _done(data, Did("write", offset=at, data=piece))
        elif chance.random() < 0.3 and (data is None or stop > len(data)):
            junk = chance.randbytes(len(piece)) if chance.random() < 0.5 else bytes(len(piece))
            data = _done(data, Did("write", offset=at, data=junk))  # it grew, and no more
        at = stop
    return data


# -- apsw -----------------------------------------------------------------------------------------

_numbers = count(1)


class _Vfs(apsw.VFS):
    """The operating system's files, with a note of all that is done to them."""

    def __init__(self, disk: Disk) -> None:
        self.name = f"disk{next(_numbers)}"
        self._disk = disk
        super().__init__(self.name, "unix")

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:  # noqa: N802 (SQLite's name)
        return _NotedFile(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        with self._disk.lock:
            super().xDelete(filename, syncdir)
            self._disk.note(Did("delete", Path(filename).name))
            if syncdir:
                self._disk.note(Did("sync folder"))


class _NotedFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: Any) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk = disk
        self._name = Path(path or "temporary").name
        journals = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
        self._syncs_folder = bool(flags[0] & journals)
        super().__init__("unix", name, flags)

    # Under the lock: a sync covers what was written before it began, and nothing else.

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        with self._disk.lock:
            super().xWrite(data, offset)
            self._disk.note(Did("write", self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        with self._disk.lock:
            super().xTruncate(newsize)
            self._disk.note(Did("truncate", self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        with self._disk.lock:
            super().xSync(flags)
            self._disk.note(Did("sync", self._name))
            if self._syncs_folder:
                self._disk.note(Did("sync folder"))
                self._syncs_folder = False
