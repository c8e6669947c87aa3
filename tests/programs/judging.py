"""Judging: a case is run on a store, and what the model says of it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from outlast.ports.store import Store
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual import VirtualClock
from tests.programs.model import violations
from tests.programs.program import Case
from tests.programs.runner import Evidence, Hangs, MakeStore, in_memory, run_case

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
            yield _in_files(Path(folder))
    elif name == "postgres":
        # The schema of each process of tests has the name of the process.
        os.environ["PYTEST_XDIST_WORKER"] = f"programs{worker}"
        from tests.programs.on_postgres import Kept

        yield Kept()
    else:
        from tests.redis.servers import single

        yield lambda clock: single(clock=clock)


def _in_files(folder: Path) -> MakeStore:
    numbers = count()

    def in_file(clock: VirtualClock) -> Store:
        # Safe enough for a process that only pretends to die, and not slowed down by the disk.
        number = next(numbers)
        for old in folder.glob(f"{number - 2}.db*"):
            old.unlink()
        return SqliteStore(folder / f"{number}.db", clock=clock, synchronous="normal")

    return in_file
