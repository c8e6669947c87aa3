"""Fetches newer Pythons and servers from the distribution's unstable release, without installing them.

The packages are downloaded with a private state folder of apt, whose signed index verifies them,
unpacked below `.cache/`, and their programs are pointed at the libraries that came along. Nothing of the
system changes, and no root is needed. A rolling release removes old versions, so none is pinned: what was
fetched is recorded in `versions.json`, which is written last and marks a complete folder.

This module uses only the standard library and starts on Python 3.8, because `./dev` needs it to find an
interpreter.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SUITE = "sid"
SERVER_PACKAGES = ["postgresql-18", "redis-tools", "valkey-tools"]
DONE = "versions.json"


class CannotFetch(Exception):
    """The packages cannot be had here; the text says why."""


def fetch_python(version: str, home: Path, patchelf: str) -> Path:
    """Return the newest Python of `version` ("3.14"), fetched into `home` if it is not there yet."""
    python = home / f"root/usr/bin/python{version}"
    if not is_fetched(home):
        packages = [f"python{version}", f"python{version}-dev", "libstdc++6"]
        _fetch(packages, home)
        _relocate([python], home, patchelf)
        _finish(home, {version: _answer([str(python), "--version"])})
    return python


def fetch_servers(home: Path, patchelf: str) -> dict[str, Path]:
    """Return the folders of PostgreSQL 18, Redis 8 and Valkey 9, fetched into `home` if need be.

    Each folder has the programs under the names that `tools.serving` looks for, so it goes before all
    others in PATH.
    """
    postgres = home / "root/usr/lib/postgresql/18/bin"
    folders = {"postgresql": postgres, "redis": home / "redis", "valkey": home / "valkey"}
    if not is_fetched(home):
        _fetch(SERVER_PACKAGES, home)
        programs = sorted(postgres.glob("*"))
        tools = ("redis-check-rdb", "redis-cli", "valkey-check-rdb", "valkey-cli")
        programs += [home / "root/usr/bin" / tool for tool in tools]
        _relocate(programs, home, patchelf)
        for name in ("redis", "valkey"):
            folders[name].mkdir()
            # The server is the program that also checks dumps; it acts by the name it is called by.
            (folders[name] / "redis-server").symlink_to(
                home / "root/usr/bin" / (name + "-check-rdb")
            )
            (folders[name] / "redis-cli").symlink_to(home / "root/usr/bin" / (name + "-cli"))
        versions = {"postgresql": _answer([str(postgres / "postgres"), "--version"])}
        for name in ("redis", "valkey"):
            versions[name] = _answer([str(folders[name] / "redis-server"), "--version"])
        _finish(home, versions)
    return folders


def is_fetched(home: Path) -> bool:
    """Tell whether a folder is complete."""
    return (home / DONE).exists()


def versions_in(home: Path) -> dict[str, str]:
    """Return what was fetched: name and version."""
    found: dict[str, str] = json.loads((home / DONE).read_text(encoding="utf-8"))
    return found


# -- how ------------------------------------------------------------------------------------------


def _fetch(packages: list[str], home: Path) -> None:
    for program in ("apt-get", "dpkg"):
        if shutil.which(program) is None:
            raise CannotFetch(f"{program} is not on this system: only Debian's packages are known")
    if not Path(KEYRING).exists():
        raise CannotFetch(f"the keys of the distribution's archive are not here ({KEYRING})")
    shutil.rmtree(str(home), ignore_errors=True)
    apt = home / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()
    source = f"deb [signed-by={KEYRING}] {_mirror()} {SUITE} main\n"
    (apt / "sources.list").write_text(source, encoding="utf-8")
    settings = {
        "Dir::State::lists": apt / "lists",
        "Dir::State::status": apt / "status",
        "Dir::Cache": apt / "cache",
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Sandbox::User": getpass.getuser(),
        "Debug::NoLocking": "true",
    }
    lines = [f'{name} "{value}";\n' for name, value in settings.items()]
    (apt / "conf").write_text("".join(lines), encoding="utf-8")
    environment = {**os.environ, "APT_CONFIG": str(apt / "conf")}
    _call(["apt-get", "-qq", "update"], environment)
    download = ["apt-get", "-qq", "-y", "--no-install-recommends", "--download-only", "install"]
    _call([*download, *packages], environment)
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        _call(["dpkg", "-x", str(package), str(home / "root")], environment)
    shutil.rmtree(str(apt))


def _mirror() -> str:
    """Return the archive that this system uses."""
    apt = Path("/etc/apt")
    forms = [
        (apt.glob("sources.list.d/*.sources"), r"^URIs:\s*(\S+)"),
        (apt.glob("sources.list.d/*.list"), r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)"),
        (apt.glob("sources.list"), r"^deb\s+(?:\[[^]]*\]\s+)?(\S+)"),
    ]
    for places, pattern in forms:
        for place in places:
            found = re.search(pattern, place.read_text(encoding="utf-8"), re.MULTILINE)
            if found:
                return found.group(1)
    raise CannotFetch("no archive is named in /etc/apt")


def _relocate(programs: list[Path], home: Path, patchelf: str) -> None:
    """Point programs at the libraries beside them. Two calls, in this order: combined, or the other way
    round, the result crashes when it is started."""
    libraries = _libraries(home)
    loader = next(iter(sorted(libraries.glob("ld-linux*.so.*"))), None)
    if loader is None:
        raise CannotFetch("the packages brought no loader of programs along")
    for program in programs:
        if program.is_file() and not program.is_symlink() and _is_binary(program):
            _call([patchelf, "--force-rpath", "--set-rpath", str(libraries), str(program)])
            _call([patchelf, "--set-interpreter", str(loader), str(program)])


def _libraries(home: Path) -> Path:
    found = sorted(home.glob("root/usr/lib/*-linux-gnu"))
    if not found:
        raise CannotFetch("the packages brought no libraries along")
    return found[0]


def _is_binary(program: Path) -> bool:
    with program.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _finish(home: Path, versions: dict[str, str]) -> None:
    (home / DONE).write_text(json.dumps(versions, indent=1), encoding="utf-8")


def _answer(command: list[str]) -> str:
    """Return the version that a program says it has; it must start for that."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = done.stdout.decode(errors="replace")
    found = re.search(r"\d+(?:\.\d+)+(?:(?:a|b|rc)\d+)?", said)
    if done.returncode != 0 or found is None:
        raise CannotFetch(f"{command[0]} does not start: {said.strip()[-300:]}")
    return found.group()


def _call(command: list[str], environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace").strip()[-600:]
        raise CannotFetch("{} failed: {}".format(" ".join(command[:2]), said))
