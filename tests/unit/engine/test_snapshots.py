"""A snapshot is a cache: with it, without it, or with a bad one, a run goes on in the same way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast.engine.replay.replay_log import CODEC, ReplayLog, read_snapshot
from outlast.errors import PayloadTooLarge
from outlast.model.commit import Commit, Outcome
from outlast.model.run import Run
from outlast.model.run_contents import Snapshot
from outlast.model.validation import MAX_PAYLOAD_BYTES
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testing.crash_sweep import SNAPSHOTS, ResidencyPolicy
from outlast.testing.crashable_process import CrashableProcess
from outlast.testing.scenario_result import EffectLedger

PATIENCE = 7200
"""In virtual seconds: a run that takes longer hangs."""

MakeStore = Callable[[VirtualClock], Store]


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """How to make the store of a test."""
    if request.param == "memory":
        return lambda clock: MemoryStore(clock=clock)
    return lambda clock: SqliteStore(tmp_path / "runs.db", clock=clock)


@asynccontextmanager
async def dying(
    store: Store, clock: VirtualClock, *workflows: Any, residency: ResidencyPolicy = SNAPSHOTS
) -> AsyncIterator[outlast.App]:
    """A process that dies, as by ``kill -9``, where the block ends."""
    process = CrashableProcess(store, clock, EffectLedger())
    doomed = outlast.App(process.store, workflows=workflows, residency=residency)
    process.attach(doomed, asyncio.create_task(doomed.open()))
    try:
        await clock.settle()
        yield doomed
    finally:
        process.die()
        await process.discard()


@outlast.step
async def quick(number: int) -> int:
    return number


begun: list[int] = []


@outlast.step
async def slow(number: int) -> int:
    begun.append(number)
    await takes(600)
    return number


@pytest.fixture(autouse=True)
def _nothing_begun() -> None:
    begun.clear()


@outlast.workflow
async def step_beside_steps() -> list[int]:
    async def short_ones() -> int:
        return sum([await quick(number) for number in range(5)])

    return list(await asyncio.gather(slow(1), short_ones()))


@outlast.workflow
async def map_beside_steps() -> list[int]:
    async def short_ones() -> int:
        return sum([await quick(number) for number in range(5)])

    done, total = await asyncio.gather(outlast.map(slow, [1, 2]), short_ones())
    return [*done, total]


@pytest.mark.parametrize(
    ("workflow", "end"), [(step_beside_steps, [1, 10]), (map_beside_steps, [1, 2, 10])]
)
@pytest.mark.proves("I8", "I14", "I24")
async def test_what_was_open_at_a_snapshot_is_begun_again(
    workflow: Any, end: list[int], make_store: MakeStore
) -> None:
    """A step or map that ran beside others when a snapshot was made, and when the process died, is
    taken up by the next process."""
    clock = VirtualClock()
    async with make_store(clock) as store:
        async with dying(store, clock, workflow) as doomed:
            await doomed.start(workflow(), id="it")
            await clock.settle()
            assert begun
        assert (await store.load_snapshot("it")).sequence > 2
        async with app(workflow, store=store, clock=clock, residency=SNAPSHOTS) as testing:
            assert await testing.get("it").result(timeout=PATIENCE) == end


@pytest.mark.proves("I8", "I14", "I24")
async def test_a_map_goes_on_after_a_graceful_restart(make_store: MakeStore) -> None:
    """An app that closes in the middle of a map, after a snapshot, hands the map on."""
    clock = VirtualClock()
    async with make_store(clock) as store:
        async with app(map_beside_steps, store=store, clock=clock, residency=SNAPSHOTS) as testing:
            await testing.start(map_beside_steps(), id="it")
            await clock.settle()
        assert begun
        async with app(map_beside_steps, store=store, clock=clock, residency=SNAPSHOTS) as testing:
            assert await testing.get("it").result(timeout=PATIENCE) == [1, 2, 10]


@pytest.mark.proves("I13")
async def test_a_snapshot_has_the_sequence_of_each_event(make_store: MakeStore) -> None:
    """What it holds is what the history holds under the same numbers."""
    clock = VirtualClock()
    async with make_store(clock) as store:
        async with dying(store, clock, step_beside_steps) as doomed:
            await doomed.start(step_beside_steps(), id="it")
            await clock.settle()
        snapshot = await store.load_snapshot("it")
        recorded = {event.sequence: event for event in await store.history("it")}
        kept = read_snapshot(snapshot)
        assert [one.sequence for one in kept] == list(range(1, snapshot.sequence + 1))
        for one in kept:
            event = recorded[one.sequence]
            assert (one.type, one.step_name) == (event.type, event.step_name)


@pytest.mark.proves("I13", "I24")
async def test_a_snapshot_of_the_form_without_sequences_is_not_read(
    make_store: MakeStore,
) -> None:
    """Snapshots were written once in which all sequences are 0: the history is read instead."""
    clock = VirtualClock()
    async with make_store(clock) as store:
        async with dying(store, clock, step_beside_steps) as doomed:
            await doomed.start(step_beside_steps(), id="it")
            await clock.settle()
        snapshot = await store.load_snapshot("it")
        # Nothing of it is good any more: a replay that relied on it would fail.
        old = msgspec.structs.replace(snapshot, data=b"[]", codec="replay-log-1")
        await store.save_snapshot(old, token=(await store.get("it")).token)
        async with app(step_beside_steps, store=store, clock=clock, residency=SNAPSHOTS) as testing:
            assert await testing.get("it").result(timeout=PATIENCE) == [1, 10]


# -- what cannot be stored ------------------------------------------------------------------------

LARGE = 1024 * 1024
MANY = MAX_PAYLOAD_BYTES // LARGE + 4


@outlast.step
async def report(number: int) -> str:
    return "x" * LARGE


@outlast.workflow
async def reports() -> int:
    total = sum([len(await report(number)) for number in range(MANY)])
    return total + await slow(0)


@pytest.mark.proves("I14", "I24")
async def test_a_snapshot_that_is_too_large_is_left_out(make_store: MakeStore) -> None:
    """Results that together are larger than a payload may be stop no run, and a process that takes
    it over reads its history."""
    clock = VirtualClock()
    async with make_store(clock) as store:
        async with dying(store, clock, reports) as doomed:
            await doomed.start(reports(), id="it")
            while not begun:
                await clock.settle()
        snapshot = await store.load_snapshot("it")
        assert len(snapshot.data) <= MAX_PAYLOAD_BYTES
        assert snapshot.sequence < 2 * MANY
        async with app(reports, store=store, clock=clock, residency=SNAPSHOTS) as testing:
            assert await testing.get("it").result(timeout=PATIENCE) == MANY * LARGE


def test_after_one_that_is_too_large_the_next_is_tried_when_it_has_doubled() -> None:
    """To encode it costs time: it is not tried again with each commit."""
    digest = ReplayLog(writes=True, residency=ResidencyPolicy(snapshot_after=4))
    event = outlast.model.Event(
        type="step.completed", run_id="it", output=msgspec.Raw(b'"' + b"x" * LARGE * 5 + b'"')
    )
    tries = []
    for sequence in range(32):
        digest.add([event])
        if digest.is_due:
            tries.append(sequence + 1)
            assert (
                digest.snapshot(Run(id="it", workflow="w"), sequence + 1, event.timestamp) is None
            )
    assert tries == [4, 8, 16, 32]


class Choosy(MemoryStore):
    """A store that takes no snapshots, though it says that it does."""

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        if any(commit.snapshot is not None for commit in commits):
            raise PayloadTooLarge("a snapshot: no room for that")
        return await super().commit(commits, atomic=atomic, timeout=timeout)


@pytest.mark.proves("I24")
async def test_a_store_that_refuses_a_snapshot_gets_none() -> None:
    """The commit is written without it: a cache is never the reason that a run stops."""
    clock = VirtualClock()
    store = Choosy(clock=clock)
    often = ResidencyPolicy(snapshot_after=4, growth=0)
    async with app(step_beside_steps, store=store, clock=clock, residency=often) as testing:
        run = await testing.start(step_beside_steps(), id="it")
        assert await run.result() == [1, 10]
    assert await store.find_snapshot("it") is None


async def test_who_saves_a_snapshot_that_is_too_large_is_told(make_store: MakeStore) -> None:
    """An engine of your own decides itself what to do without."""
    async with make_store(VirtualClock()) as store:
        large = Snapshot(run_id="it", sequence=1, data=b"x" * (MAX_PAYLOAD_BYTES + 1), codec=CODEC)
        with pytest.raises(PayloadTooLarge, match="the limit is"):
            await store.save_snapshot(large)


@pytest.mark.parametrize("wrong", [{"snapshot_after": 0}, {"growth": -1}])
def test_an_impossible_residency(wrong: dict[str, Any]) -> None:
    """It is refused where it is written."""
    with pytest.raises(outlast.errors.InvalidValue, match="snapshot_after ≥ 1"):
        ResidencyPolicy(**wrong)


# -- loops ----------------------------------------------------------------------------------------

undone: list[int] = []


@outlast.step
async def reserve(number: int) -> int:
    return number


@reserve.compensate
async def release(number: int) -> None:
    undone.append(number)


async def late(number: int) -> int | outlast.Stop[int]:
    """The first that could be undone comes in the fourth iteration."""
    if number == 8:
        return outlast.Stop(number)
    await quick(number)
    if number in {4, 6}:
        await reserve(number)
    if number == 7:
        await outlast.wait_for_signal("go")
    return number + 1


@outlast.workflow
async def undoes_late(fails: bool) -> int:
    total = await outlast.loop(late, 0)
    if fails:
        raise ValueError("no")
    return total


@outlast.workflow
async def undoes_late_in_scopes(fails: bool) -> int:
    async def body(number: int) -> int | outlast.Stop[int]:
        if number == 8:
            return outlast.Stop(number)
        return await outlast.scope(once, number)

    async def once(number: int) -> int:
        await asyncio.gather(quick(number), outlast.map(quick, [number]))
        if number in {4, 6}:
            await reserve(number)
        if number == 7:
            await outlast.wait_for_signal("go")
        return number + 1

    total = await outlast.loop(body, 0)
    if fails:
        raise ValueError("no")
    return total


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("workflow", [undoes_late, undoes_late_in_scopes])
@pytest.mark.parametrize("residency", [SNAPSHOTS, ResidencyPolicy()], ids=["often", "usual"])
@pytest.mark.proves("I13", "I20")
async def test_a_loop_that_becomes_undoable_late_goes_on(
    workflow: Any, residency: ResidencyPolicy, fails: bool, make_store: MakeStore
) -> None:
    """What a snapshot has left out of a loop is never needed again: a replay begins before the
    first iteration that could be undone, and undoes what comes from there."""
    undone.clear()
    clock = VirtualClock()
    async with make_store(clock) as store:
        async with dying(store, clock, workflow, residency=residency) as doomed:
            await doomed.start(workflow(fails), id="it")
            while (await store.get("it")).status != "waiting":
                await clock.settle()
        async with app(workflow, store=store, clock=clock, residency=residency) as testing:
            await testing.get("it").signal("go")
            if fails:
                with pytest.raises(outlast.errors.RunFailed, match="no"):
                    await testing.get("it").result(timeout=PATIENCE)
            else:
                assert await testing.get("it").result(timeout=PATIENCE) == 8
    assert undone == ([6, 4] if fails else [])
