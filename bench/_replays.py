"""What coming back costs: replay, snapshots, loops; and whether a long run gets slower."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import outlast
from bench._table import Line, made_ready
from outlast.codecs import JsonCodec
from outlast.engine.digest import Digest, load_digest, read_snapshot
from outlast.engine.execution import Execution
from outlast.model import Run, Status
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore

STEPS = 1_000
SHORT_LOOP, LONG_LOOP = 100, 10_000
EARLY, LATE, WINDOW = 10, 9_900, 200
TIMES = 5  # of what is short, in a round

_begun: list[float] = []


@outlast.step
async def increase(number: int) -> int:
    """Do next to nothing."""
    _begun.append(time.perf_counter())
    return number + 1


@outlast.workflow
async def in_a_row(steps: int) -> int:
    """So many steps, and then a wait that nobody ends."""
    number = 0
    for _ in range(steps):
        number = await increase(number)
    return await outlast.wait_for("go", int)


@outlast.workflow
async def in_a_loop(iterations: int) -> int:
    """So many iterations of a step, and then a wait that nobody ends."""

    async def once(number: int) -> int | outlast.Stop[int]:
        number = await increase(number)
        return number if number <= iterations else outlast.Stop(number)

    await outlast.loop(once, 0)
    return await outlast.wait_for("go", int)


async def measure_replay(folder: Path, rounds: int) -> list[Line]:
    """Steps a second at which recorded steps are gone through again, without reading them."""
    async with SqliteStore(folder / "replay.db") as store:
        run = await _parked(store, in_a_row, STEPS)
        history = await store.history(run.id)
    speeds = []
    for _ in range(rounds):
        with made_ready():
            for _ in range(TIMES):
                execution = _execution(in_a_row, run)
                begun = time.perf_counter()
                execution.replay(history)
                speeds.append(STEPS / (time.perf_counter() - begun))
                execution.evict()
    return [Line(f"replay of {STEPS:,} steps", "steps/s", speeds, enough=40_000)]


async def measure_snapshots(folder: Path, rounds: int) -> list[Line]:
    """Loading a snapshot, next to reading the events that it stands for and folding them."""
    lines = []
    async with SqliteStore(folder / "snapshots.db") as store:
        for workflow, count in ((in_a_loop, STEPS), (in_a_row, STEPS)):
            run = await _parked(store, workflow, count)
            snapshot = await store.find_snapshot(run.id)
            assert snapshot is not None
            end = snapshot.sequence

            async def load(run: Run = run) -> None:
                found = await store.find_snapshot(run.id)
                assert found is not None
                read_snapshot(found)

            async def fold(run: Run = run, end: int = end) -> None:
                events = await store.history(run.id, limit=end)
                Digest(events).fold()

            loads, folds = [], []
            for _ in range(rounds):
                loads.append(1 / await _seconds(load))
                folds.append(1 / await _seconds(fold))
            name = f"loading a snapshot of {end:,} events, {workflow.name}"
            lines.append(Line(name, "loads/s", loads, folds, "folding them", 5.0))
    return lines


async def measure_loops(folder: Path, rounds: int) -> list[Line]:
    """Resuming a run after many iterations, next to one after few: reading and replaying it."""
    async with SqliteStore(folder / "loops.db") as store:
        short = await _parked(store, in_a_loop, SHORT_LOOP)
        long = await _parked(store, in_a_loop, LONG_LOOP)

        async def resume(run: Run) -> None:
            digest = await load_digest(store, run)
            execution = _execution(in_a_loop, run)
            execution.replay(digest.events)
            execution.evict()

        longs, shorts = [], []
        for _ in range(rounds):
            longs.append(await _seconds(lambda: resume(long)) * 1000)
            shorts.append(await _seconds(lambda: resume(short)) * 1000)
    name = f"resume after {LONG_LOOP:,} iterations"
    return [Line(name, "ms", longs, shorts, f"after {SHORT_LOOP}", 2.0, at_most=True)]


async def measure_length(rounds: int) -> list[Line]:
    """What a step costs late in a run, next to early in it. In memory, so that no disk is in it."""
    late, early, slowest = [], [], []
    for _ in range(rounds):
        _begun.clear()
        async with MemoryStore() as store:
            await _parked(store, in_a_row, LATE + WINDOW + 1)
        took = [(after - before) * 1e6 for before, after in pairwise(_begun)]
        early.append(statistics.median(took[EARLY : EARLY + WINDOW]))
        late.append(statistics.median(took[LATE : LATE + WINDOW]))
        slowest.append(max(took) / 1000)
    name = f"a step after {LATE:,} others"
    return [
        Line(name, "µs", late, early, f"after {EARLY}", 1.15, at_most=True),
        Line(f"the slowest of {LATE + WINDOW:,} steps", "ms", slowest),
    ]


async def _parked(
    store: MemoryStore | SqliteStore, workflow: outlast.Workflow[[int], int], count: int
) -> Run:
    """A run that has done its work and waits, out of memory."""
    async with outlast.App(store, workflows=[workflow]) as app:
        handle = await app.start(workflow, count)
        while await handle.status() is not Status.WAITING:
            await store.clock.sleep(0.05)
        return await store.get(handle.id)


def _execution(workflow: outlast.Workflow[[int], int], run: Run) -> Execution:
    return Execution(workflow.definition, run_id=run.id, uid=run.uid, codec=JsonCodec())


async def _seconds(act: Callable[[], Awaitable[None]]) -> float:
    """How long it takes, on average of a few."""
    with made_ready():
        begun = time.perf_counter()
        for _ in range(TIMES):
            await act()
        return (time.perf_counter() - begun) / TIMES
