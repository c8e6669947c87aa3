"""How long it takes until something happens: the import, the first step, the command line.

import     a new process that imports the package and ends, next to the same of others, each in its own
           environment; and next to a process that imports nothing, which is in all of these figures
first      a new process that makes a SQLite file, runs a workflow of one step, and ends, next to DBOS
cli        `outlast --version` and `outlast ls` of a store with 100 runs, next to others' `--version`

    ./dev bench start [--rounds 5] [--only import] [--alone] [--json FILE] [--plot FOLDER]
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench._arena import Arena, compete
from bench._our_steps import ten_steps
from bench._peers import PEERS, PeerMissing, environment, environment_for, ours, theirs
from bench._stores import store_at
from bench._table import Contest, Entry
from outlast.model import Commit, Run

IMPORTS = {
    "dbos": "dbos",
    "restate": "restate",
    "absurd": "absurd_sdk",
    "langgraph": "langgraph.graph",
    "sayiir": "sayiir",
    "eventsourcing": "eventsourcing.application",
    "celery": "celery",
    "dramatiq": "dramatiq",
    "huey": "huey",
    "procrastinate": "procrastinate",
}
VERSIONS = {"dbos": ["dbos", "version"], "celery": ["celery", "--version"]}
RUNS = 100


def main(argv: list[str]) -> int:
    """Measure."""
    parts = {"import": imports, "first": first_step, "cli": command_line}
    return compete(__name__, argv, parts, rounds=5, peers=IMPORTS)


def imports(arena: Arena) -> list[Contest]:
    """Milliseconds of a process that imports and ends."""
    contestants: dict[str, Callable[[], float]] = {
        "outlast": partial(_took, [sys.executable, "-c", "import outlast"]),
        "Python alone": partial(_took, [sys.executable, "-c", "pass"]),
    }
    for name, module in IMPORTS.items() if not arena.alone else ():
        contestants[name] = partial(_imported, name, module)
    return [_contest(arena, "import", contestants)]


def first_step(arena: Arena) -> list[Contest]:
    """Milliseconds of a process that runs one step and ends."""

    def place() -> str:
        return arena.place("SQLite")

    contestants: dict[str, Callable[[], float]] = {
        "outlast, SQLite": lambda: _took(ours("bench._first_step", place())),
    }
    if not arena.alone:
        contestants["DBOS, SQLite"] = lambda: _took(
            theirs("dbos", "dbos_first_step", place().removeprefix("sqlite:///"))
        )
    return [_contest(arena, "first step, from nothing", contestants)]


def command_line(arena: Arena) -> list[Contest]:
    """Milliseconds of a command."""
    program = [sys.executable, "-m", "outlast"]
    place = arena.place("SQLite")
    asyncio.run(_fill(place))
    contestants: dict[str, Callable[[], float]] = {
        "outlast --version": partial(_took, [*program, "--version"])
    }
    for name, command in VERSIONS.items() if not arena.alone else ():
        contestants[" ".join(command)] = partial(_command, name, command)
    listing: dict[str, Callable[[], float]] = {
        f"outlast ls, {RUNS} runs": partial(_took, [*program, "ls", "--store", place]),
    }
    return [
        _contest(arena, "command line, its version", contestants),
        _contest(arena, "command line, a list of runs", listing),
    ]


def _contest(arena: Arena, name: str, contestants: dict[str, Callable[[], float]]) -> Contest:
    for act in contestants.values():  # bytecode is written once, and the disk's cache is warm
        try:
            act()
        except PeerMissing:
            continue  # told in the rounds
    found, left_out = arena.alternate(contestants)
    entries = [
        Entry(who, [took * 1000 for took in rounds], _settings(who, name))
        for who, rounds in found.items()
    ]
    return Contest(name, "ms", entries, less=True, left_out=left_out)


def _settings(who: str, name: str) -> str:
    if not name.startswith(("first step", "command line, a list")):
        return "no store"
    ours = who.startswith("outlast")
    return f"SQLite, {'WAL' if ours else 'rollback journal'}, synchronous=FULL"


def _imported(name: str, module: str) -> float:
    python = str(environment(name, PEERS[name]))
    return _took([python, "-c", f"import {module}"])


def _command(name: str, command: list[str]) -> float:
    python = environment(name, PEERS[name])
    return _took([str(Path(python).with_name(command[0])), *command[1:]])


def _took(command: list[str]) -> float:
    env = environment_for(command[0])
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, env=env, check=False, timeout=120)
    seconds = time.perf_counter() - begun
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise PeerMissing(f"ended with {done.returncode}: {said[-1:]}")
    return seconds


async def _fill(place: str) -> None:
    runs = [Run(id=f"run-{number}", workflow=ten_steps.name) for number in range(RUNS)]
    async with store_at(place) as store:
        await store.commit([Commit(run_id=run.id, create=run) for run in runs])
