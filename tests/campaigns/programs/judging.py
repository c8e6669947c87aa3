"""Judging: a case is run on a store, and what the model says of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from outlast.ports.clock import SteadyClock
from outlast.ports.store import Store
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import VirtualClock
from tests.campaigns.programs.model import violations
from tests.campaigns.programs.program import Case
from tests.campaigns.programs.runner import Evidence, Hangs, MakeStore, in_memory, on_loop, run_case
from tests.campaigns.programs.strategies import case_of

STORES = ("memory", "sqlite", "postgres", "redis")


def judge(
    case: Case, seed: int = 0, make: MakeStore = in_memory
) -> tuple[list[str], Evidence | None]:
    """Every promise that was not kept, in sentences, and the evidence."""
    try:
        evidence = run_case(case, seed, make)
    except Hangs as hang:
        return [f"every_run_ends: {hang}"], None
    found = violations(case, evidence.ledger, evidence.runs, evidence.stuck)
    return found, evidence


def judge_seed(seed: int, make: MakeStore) -> tuple[Case, list[str], Evidence | None]:
    """The case of a seed, and the same. If it ended before anything went wrong, its first fault strikes
    at the first commit, so that every program meets one."""
    case = case_of(seed)
    found, evidence = judge(case, seed, make)
    if not found and evidence is not None and not evidence.ledger.faults:
        first = replace(case.faults[0], at=1, any_call=False)
        case = replace(case, faults=(first, *case.faults[1:]))
        found, evidence = judge(case, seed, make)
    return case, found, evidence


def fails_alike(problems: list[str], seed: int, make: MakeStore) -> Callable[[Case], bool]:
    """Whether a case breaks one of the same promises."""
    rules = {problem.partition(":")[0] for problem in problems}

    def fails(case: Case) -> bool:
        return any(one.partition(":")[0] in rules for one in judge(case, seed, make)[0])

    return fails


@contextmanager
def stores(name: str, worker: int = 0) -> Iterator[MakeStore]:
    """What makes new stores of a kind. Servers are found in the environment (`tools.servers`)."""
    if name == "memory":
        yield in_memory
    elif name == "sqlite":
        memory = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            yield in_files(Path(folder))
    elif name == "postgres":
        # The schema of each process of tests has the name of the process.
        os.environ["PYTEST_XDIST_WORKER"] = f"programs{worker}"
        from tests.campaigns.programs.on_postgres import Kept

        yield Kept()
    else:
        from tests.campaigns.programs.on_redis import connected

        yield connected


def in_files(folder: Path) -> MakeStore:
    """Makes stores in files of this folder, one after the other."""
    numbers = count()
    empty = folder / "empty.db"

    def in_file(clock: VirtualClock) -> Store:
        number = next(numbers)
        for old in folder.glob(f"{number - 2}.db*"):
            old.unlink()
        if not number:
            on_loop(_made(_file(empty, clock)))
        shutil.copyfile(empty, folder / f"{number}.db")  # to make the tables takes twice as long
        return _file(folder / f"{number}.db", clock)

    return in_file


def _file(path: Path, clock: VirtualClock) -> SqliteStore:
    # Safe enough for a process that only pretends to die, and not slowed down by the disk.
    return SqliteStore(path, clock=SteadyClock(clock), synchronous="normal")


async def _made(store: Store) -> None:
    async with store:
        pass
