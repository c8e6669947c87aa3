"""What coming back costs: reading and replaying runs of several lengths, replay alone, snapshots."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import outlast
from bench._aims import REPLAYED, TIMES_LONGER
from bench._arena import Arena, seconds
from bench._stores import settings_of
from bench._table import Aim, Contest, Entry
from bench.peers._clock import made_ready
from outlast.codecs import JsonCodec
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.replay_log import ReplayLog, read_snapshot
from outlast.engine.runner.history_loader import load_replay_log
from outlast.model import Run, Status
from outlast.ports import Store
from outlast.stores.sqlite import SqliteStore

STEPS = 1_000
LENGTHS = (1_000, 10, 10_000, 100_000)
"""Events; the first is what the others are compared with."""

SCOPES = 10
"""Of a run that is made of them, whatever its length."""

TIMES = 5
"""Of what is short, in a round."""

Numbered = outlast.Workflow[[int], int]


@outlast.step
async def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


@outlast.workflow
async def in_a_row(steps: int) -> int:
    """So many steps, and then a wait that nobody ends."""
    number = 0
    for _ in range(steps):
        number = await increase(number)
    return await outlast.wait_for_signal("go", int)


@outlast.workflow
async def in_a_loop(iterations: int) -> int:
    """So many iterations of a step, and then a wait that nobody ends."""

    async def once(number: int) -> int | outlast.Stop[int]:
        number = await increase(number)
        return number if number <= iterations else outlast.Stop(number)

    await outlast.loop(once, 0)
    return await outlast.wait_for_signal("go", int)


@outlast.workflow
async def in_scopes(steps: int) -> int:
    """So many steps in a few scopes, and then a wait that nobody ends."""

    async def some(number: int, more: int) -> int:
        for _ in range(more):
            number = await increase(number)
        return number

    number = 0
    for scope in range(SCOPES):
        number = await outlast.scope(some, number, (scope + 1) * steps // SCOPES - number)
    return await outlast.wait_for_signal("go", int)


FOLDED = (in_a_loop, in_scopes)
"""What a replay need not go through again. Steps in a row it has to."""


def measure_resume(arena: Arena) -> list[Contest]:
    """All of it, on SQLite."""
    contests = []
    for workflow, what, most in (
        (in_a_loop, "iterations of a loop", arena.size("long")),
        (in_scopes, "steps in scopes", arena.size("long")),
        (in_a_row, "steps in a row", arena.size("row")),
    ):
        lengths = [length for length in LENGTHS if length <= most]
        contests.append(asyncio.run(_lengths(arena, workflow, what, lengths)))
    return [*contests, asyncio.run(_replay(arena)), *asyncio.run(_snapshots(arena))]


async def _lengths(arena: Arena, workflow: Numbered, what: str, lengths: list[int]) -> Contest:
    """Milliseconds until a run is where it was."""
    async with SqliteStore(arena.folder / f"{workflow.name}.db") as store:
        per = (await parked(store, workflow, STEPS)).sequence / STEPS  # events of a step
        runs = {}
        for length in lengths:
            arena.say(f"making a run of {length:,} events, {what}")
            runs[length] = await parked(store, workflow, max(round(length / per), 1))

        async def resume(run: Run) -> None:
            digest = await load_replay_log(store, run, timeout_s=60)
            execution = _execution(workflow, run)
            execution.replay(digest.events)
            execution.evict()

        took: dict[int, list[float]] = {length: [] for length in lengths}
        for _ in range(arena.rounds):
            for length, run in runs.items():
                took[length].append(await seconds(partial(resume, run), TIMES) * 1000)
        settings = settings_of(store)
    entries = [
        Entry(
            f"outlast, {length:,} events", values, f"{settings}; {runs[length].sequence:,} events"
        )
        for length, values in took.items()
    ]
    aims = [Aim(TIMES_LONGER, entry.who) for entry in entries[2:] if workflow in FOLDED]
    return Contest(f"resume a run of {what}", "ms", entries, less=True, aims=aims, grows=True)


async def _replay(arena: Arena) -> Contest:
    """Steps a second at which recorded steps are gone through again, without reading them."""
    async with SqliteStore(arena.folder / "replay.db") as store:
        run = await parked(store, in_a_row, STEPS)
        history = await store.history(run.id)
    speeds = []
    for _ in range(arena.rounds * TIMES):
        execution = _execution(in_a_row, run)
        with made_ready():
            begun = time.perf_counter()
            execution.replay(history)
            speeds.append(STEPS / (time.perf_counter() - begun))
        execution.evict()
    name = f"replay of {STEPS:,} steps"
    return Contest(name, "steps/s", [Entry("outlast", speeds, "no store")], aims=[Aim(REPLAYED)])


async def _snapshots(arena: Arena) -> list[Contest]:
    """Loading a snapshot, next to reading the events that it stands for and folding them."""
    contests = []
    async with SqliteStore(arena.folder / "snapshots.db") as store:
        for workflow, what in ((in_a_loop, "a loop"), (in_a_row, "steps in a row")):
            run = await parked(store, workflow, STEPS)
            snapshot = await store.find_snapshot(run.id)
            assert snapshot is not None
            end = snapshot.sequence

            async def load(run: Run = run) -> None:
                found = await store.find_snapshot(run.id)
                assert found is not None
                read_snapshot(found)

            async def fold(run: Run = run, end: int = end) -> None:
                ReplayLog(await store.history(run.id, limit=end)).compact()

            loads, folds = [], []
            for _ in range(arena.rounds):
                loads.append(1 / await seconds(load, TIMES))
                folds.append(1 / await seconds(fold, TIMES))
            settings = settings_of(store)
            entries = [
                Entry("outlast, its snapshot", loads, settings),
                Entry("its events, folded", folds, settings),
            ]
            name = f"coming back to {end:,} events of {what}"
            contests.append(Contest(name, "/s", entries, aims=[Aim(5.0, "its events, folded")]))
    return contests


async def parked(store: Store, workflow: Numbered, count: int) -> Run:
    """A run that has done its work and waits, out of memory."""
    async with outlast.App(store, workflows=[workflow]) as app:
        handle = await app.start(workflow(count))
        while (await handle.status()).status is not Status.WAITING:
            await store.clock.sleep(0.05)
        return await store.get(handle.id)


def _execution(workflow: Numbered, run: Run) -> Execution:
    return Execution(workflow.definition, run_id=run.id, uid=run.uid, codec=JsonCodec())
