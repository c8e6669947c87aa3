"""Where the file is: URLs, paths, and filesystems that cannot keep promises."""

# ruff: noqa: ASYNC240 — a test about files may touch them

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.errors import InvalidValue, UnsafeStorage
from outlast.stores.sqlite import SqliteStore, location
from outlast.stores.sqlite.location import check_storage, filesystem_of, parse_location

MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
server:/export /srv nfs4 rw,vers=4.2 0 0
tmpfs /srv/local tmpfs rw 0 0
//nas/share /mnt/my\\040share cifs rw 0 0
host:/people /people/me/remote fuse.sshfs rw 0 0
/dev/sdb1 /mnt/usb fuseblk rw 0 0
/dev/sdc1 /over ext4 rw 0 0
server:/x /over nfs rw 0 0
"""


@pytest.mark.parametrize(
    "text,expected",
    [
        ("sqlite:////srv/a.db", "/srv/a.db"),
        ("sqlite:////srv/with%20space.db", "/srv/with space.db"),
        ("/srv/a.db", "/srv/a.db"),
        (Path("/srv/a.db"), "/srv/a.db"),
    ],
)
def test_an_absolute_location(text: str | Path, expected: str) -> None:
    """Four slashes, or a plain path, name a file anywhere."""
    assert parse_location(text) == Path(expected)


@pytest.mark.parametrize("text", ["sqlite:///a.db", "a.db", "./a.db"])
def test_a_relative_location(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes name a file in the working folder, as it is when the store is made."""
    monkeypatch.chdir(tmp_path)
    assert parse_location(text) == tmp_path / "a.db"


def test_a_link_is_followed(tmp_path: Path) -> None:
    """The log lies beside the file itself, not beside a link to it."""
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    assert parse_location(tmp_path / "link.db") == tmp_path / "real.db"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":memory:",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:a.db",
        "sqlite:///a.db?mode=ro",
        "sqlite://host/a.db",
        "file:a.db",
        "postgresql://host/db",
        "a\0b",
    ],
)
def test_what_is_no_location(text: str) -> None:
    """Anything else is refused with advice, before a file is made."""
    with pytest.raises(InvalidValue):
        SqliteStore(text)


@pytest.mark.parametrize(
    "path,kind",
    [
        ("/people/me/a.db", "ext4"),
        ("/srv/a.db", "nfs4"),
        ("/srv/local/a.db", "tmpfs"),
        ("/srvx/a.db", "ext4"),
        ("/mnt/my share/a.db", "cifs"),
        ("/people/me/remote/a.db", "fuse.sshfs"),
        ("/mnt/usb/a.db", "fuseblk"),
        ("/over/a.db", "nfs"),
    ],
)
def test_the_filesystem_of_a_file(path: str, kind: str) -> None:
    """The longest mount point counts, and the last mount on it."""
    assert filesystem_of(Path(path), MOUNTS) == kind


def test_no_table_of_mounts() -> None:
    """Where the system does not tell, nothing is refused."""
    assert filesystem_of(Path("/a.db"), "") == ""
    check_storage(Path("/a.db"), "")


@pytest.mark.parametrize("path", ["/srv/a.db", "/mnt/my share/a.db", "/people/me/remote/a.db"])
@pytest.mark.proves("S-19")
def test_network_filesystems_are_refused(path: str) -> None:
    """On NFS, SMB and the like, SQLite's locks and shared memory end at the machine's edge."""
    with pytest.raises(UnsafeStorage, match="network filesystem"):
        check_storage(Path(path), MOUNTS)


@pytest.mark.parametrize("path", ["/a.db", "/srv/local/a.db", "/mnt/usb/a.db"])
def test_local_filesystems_are_fine(path: str) -> None:
    """Disks, memory and local FUSE filesystems pass."""
    check_storage(Path(path), MOUNTS)


async def test_a_store_on_a_network_filesystem(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening is refused before the file is made, unless the user knows better."""
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x {tmp_path} nfs rw 0 0\n", encoding="utf-8")
    monkeypatch.setattr(location, "MOUNTS", mounts)
    with pytest.raises(UnsafeStorage):
        await SqliteStore(path).open()
    assert not path.exists()
    async with SqliteStore(path, network_storage=True) as store:
        assert await store.find_one("a") is None
