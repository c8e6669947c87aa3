"""Where the file is: URLs and paths, its mode, and filesystems where SQLite is not safe."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from urllib.parse import unquote

from outlast.errors import InvalidValue, NotAStore, ReadOnlyStore, StoreFull, UnsafeStorage

SCHEME = "sqlite://"
MOUNTS = Path("/proc/self/mounts")

# WAL needs shared memory and locks of the operating system: neither works across machines, even if
# the server supports locks.
NETWORK = frozenset(
    {
        "9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fhgfs", "gfs",
        "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs",
        "prl_fs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs", "webdav",
    }
)  # fmt: skip
NETWORK_FUSE = frozenset(
    {
        "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "curlftpfs", "davfs", "davfs2", "gcsfuse",
        "glusterfs", "goofys", "juicefs", "rclone", "s3fs", "smbnetfs", "sshfs", "vmhgfs-fuse",
    }
)  # fmt: skip


def parse_location(location: str | os.PathLike[str]) -> Path:
    """The absolute path that a URL or a path names.

    ``sqlite:///orders.db`` is relative to the working folder, ``sqlite:////srv/orders.db`` is
    absolute, as in SQLAlchemy.
    """
    text = os.fspath(location)
    if text.startswith(SCHEME):
        rest = text.removeprefix(SCHEME)
        if not rest.startswith("/") or "?" in rest or "#" in rest:
            raise InvalidValue(
                f"{text!r} is not a SQLite URL: use sqlite:///name.db for a file in the working "
                "folder or sqlite:////folder/name.db for one anywhere, without options"
            )
        text = unquote(rest[1:])
    elif "://" in text or text.startswith(("file:", "sqlite:")):
        raise InvalidValue(f"{text!r} is not a path and not a SQLite URL: use sqlite:///name.db")
    if not text or text == ":memory:" or "\0" in text:
        raise InvalidValue(
            f"{text!r} is not a file: a SQLite store lives in one. For tests without a file there "
            "is the memory store"
        )
    return Path(os.path.realpath(text))


def prepare_file(path: Path) -> None:
    """Create the file, unless it exists, with mode 0600.

    SQLite would use the umask; its log and index inherit the mode of the file. An existing file is
    not opened here: closing it would drop the POSIX locks of all connections of this process.
    """
    if not path.parent.is_dir():
        raise InvalidValue(
            f"the folder {path.parent} does not exist: make it first, or correct the path"
        )
    if path.is_dir():
        raise NotAStore(f"{path} is a folder: add a file name, such as {path.name}/outlast.db")
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    except PermissionError as error:
        raise ReadOnlyStore(
            f"the folder {path.parent} cannot be written: check its permissions"
        ) from error
    except OSError as error:
        raise _refused(path, error) from error
    try:
        os.fchmod(descriptor, 0o600)  # the umask may have removed bits
    finally:
        os.close(descriptor)
    _sync_folder(path.parent)


def identity_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file, or None."""
    found = status_of(path)
    return None if found is None else (found.st_dev, found.st_ino)


def status_of(path: Path | str) -> os.stat_result | None:
    """The `stat` of a file, or None."""
    try:
        return os.stat(path)  # noqa: PTH116 - faster, for each transaction
    except OSError:
        return None


def check_leftover_log(path: Path) -> None:
    """Raise if the file is missing or empty while its log exists: SQLite would create a new database
    and discard the log."""
    log, file = status_of(f"{path}-wal"), status_of(path)
    if log is not None and log.st_size and (file is None or not file.st_size):
        what = "is missing" if file is None else "was truncated"
        raise UnsafeStorage(
            f"{path} {what}, but its log {path.name}-wal is there: restore the file from a backup, "
            f"or delete {path.name}-wal and {path.name}-shm too to create a new store here"
        )


def check_storage(path: Path, mounts: str) -> None:
    """Raise on a network filesystem. `mounts` is the text of /proc/self/mounts."""
    kind = filesystem_of(path, mounts)
    name, _, fuse = kind.partition(".")
    if name in NETWORK or (name in ("fuse", "fuseblk") and fuse in NETWORK_FUSE):
        raise UnsafeStorage(
            f"{path} is on a network filesystem ({kind}), where SQLite can lose and damage data: "
            "use a local disk, or PostgreSQL for several machines. If you know better, pass "
            "network_storage=True"
        )


def filesystem_of(path: Path, mounts: str) -> str:
    """The type of the filesystem that holds `path`; empty if unknown."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        point = Path(_unescape(fields[1]))
        # A later mount on the same point hides an earlier one.
        if len(point.parts) >= best and path.is_relative_to(point):
            best, kind = len(point.parts), fields[2]
    return kind


def read_mounts() -> str:
    """The table of mounts; empty where the system has none, such as on macOS."""
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _sync_folder(folder: Path) -> None:
    # SQLite syncs the folder for its log, not for a new database: after a power loss the log could
    # exist without its file.
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refused(path: Path, error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"no space is left for {path}: free some space and go on")
    if error.errno == errno.EROFS:
        return ReadOnlyStore(f"{path} cannot be made: its filesystem is read-only")
    return NotAStore(f"{path} cannot be made: {error.strerror}")
