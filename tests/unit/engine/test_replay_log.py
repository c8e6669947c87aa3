"""Snapshots of long runs: a replay needs less than all of history, and a bad one costs nothing."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

import outlast
from outlast.engine.replay.replay_log import SNAPSHOT_AFTER, ReplayLog, read_snapshot
from outlast.model.event import payload_of, to_event
from outlast.model.payloads import ScopeCompleted, ScopeStarted, StepCompleted, StepStarted
from outlast.model.run import Run
from outlast.model.times import EPOCH
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock
from tests.unit.engine.test_slice import settle


@outlast.step
async def add(number: int) -> int:
    return number + 1


async def count_up(number: int) -> int | outlast.Stop[int]:
    if number == 500:
        return outlast.Stop(number)
    return await add(number)


@outlast.workflow
async def counts(start: int) -> int:
    total = await outlast.loop(count_up, start)
    await outlast.sleep(3600)
    return total + await add(1)


async def asleep(store: MemoryStore) -> None:
    async with outlast.App(store, workflows=[counts]) as app:
        await app.start(counts(0), id="count")
        while (await app.get("count").status()).status != "waiting":
            await settle()


@pytest.mark.proves("R-19", "R-11", "S-16")
async def test_a_long_loop_goes_on_from_its_snapshot() -> None:
    """A run of 500 iterations has a snapshot that leaves the finished ones out, and a fresh
    engine finishes it from there."""
    store = MemoryStore(clock=ManualClock())
    await asleep(store)
    snapshot = await store.load_snapshot("count")
    run = await store.get("count")
    assert SNAPSHOT_AFTER < snapshot.sequence <= run.sequence
    assert len(msgspec.json.decode(snapshot.data)) < 20
    reads: list[int] = []
    whole = store.history

    async def watched(run_id: str, *, after: int = 0, **rest: object) -> object:
        reads.append(after)
        return await whole(run_id, after=after)

    store.history = watched  # type: ignore[assignment,method-assign]
    async with outlast.App(store, workflows=[counts]) as app:
        assert isinstance(store.clock, ManualClock)
        store.clock.advance(3600)
        assert await app.get("count").result() == 502
    assert reads == [snapshot.sequence]


STEPS = 300


@outlast.workflow
async def adds_up() -> list[int]:
    sums = [await add(number) for number in range(STEPS)]
    await outlast.sleep(3600)
    return [sums[0], sums[-1], await add(len(sums))]


async def add_often(times: int) -> int:
    number = 0
    for _ in range(times):
        number = await add(number)
    return number


@outlast.workflow
async def in_scopes(times: int) -> int:
    total = 0
    for _ in range(3):
        total += await outlast.scope(add_often, times)
    await outlast.sleep(3600)
    return total


@pytest.mark.parametrize("times", [SNAPSHOT_AFTER, 1_000])
@pytest.mark.proves("R-19", "I14")
async def test_a_scope_that_was_most_of_a_run_is_left_out_at_once(times: int) -> None:
    """However long the scopes were, and wherever a snapshot was due inside of them: what has to be
    read of a run that rests is short."""
    store = MemoryStore(clock=ManualClock())
    async with outlast.App(store, workflows=[in_scopes]) as app:
        await app.start(in_scopes(times), id="scopes")
        while (await app.get("scopes").status()).status != "waiting":
            await settle()
    snapshot = await store.load_snapshot("scopes")
    run = await store.get("scopes")
    assert run.sequence > 6 * times
    kept = len(msgspec.json.decode(snapshot.data)) + run.sequence - snapshot.sequence
    assert kept < 20
    async with outlast.App(store, workflows=[in_scopes]) as app:
        assert isinstance(store.clock, ManualClock)
        store.clock.advance(3600)
        assert await app.get("scopes").result() == 3 * times


@pytest.mark.proves("R-19", "I8", "I14")
async def test_a_long_run_without_loops_goes_on_from_its_snapshot() -> None:
    """What is open when a snapshot is made is in it: nothing is asked for or done again."""
    store = MemoryStore(clock=ManualClock())
    async with outlast.App(store, workflows=[adds_up]) as app:
        await app.start(adds_up(), id="sum")
        while (await app.get("sum").status()).status != "waiting":
            await settle()
    snapshot = await store.load_snapshot("sum")
    assert SNAPSHOT_AFTER < snapshot.sequence < 2 * STEPS
    assert isinstance(store.clock, ManualClock)
    store.clock.advance(3600)
    async with outlast.App(store, workflows=[adds_up]) as app:
        assert await app.get("sum").result() == [1, STEPS, STEPS + 1]
    history = await store.history("sum")
    assert sum(event.type == "step.started" for event in history) == STEPS + 1


@pytest.mark.proves("I13", "S28")
async def test_a_damaged_snapshot_is_not_needed() -> None:
    """A snapshot that cannot be read is left aside and the whole history is replayed."""
    store = MemoryStore(clock=ManualClock())
    await asleep(store)
    good = await store.load_snapshot("count")
    token = (await store.get("count")).token
    bad = msgspec.structs.replace(good, data=b"[{")
    await store.save_snapshot(bad, token=token)
    async with outlast.App(store, workflows=[counts]) as app:
        assert isinstance(store.clock, ManualClock)
        store.clock.advance(3600)
        assert await app.get("count").result() == 502


def test_a_snapshot_knows_which_attempt_was_alone() -> None:
    """Of the attempts of a step it keeps all but the input: one that died alone is the cause of the death,
    also for a process that has read the snapshot."""
    begun = StepStarted(attempt=3, alone=True, input=Raw(b'{"large":1}'))
    digest = ReplayLog([to_event(begun, run_id="r", step_name="poison", timestamp=EPOCH)])
    snapshot = digest.snapshot(Run(id="r", workflow="w"), 1, EPOCH)
    assert snapshot is not None
    (event,) = read_snapshot(snapshot)
    assert payload_of(event) == StepStarted(attempt=3, alone=True)


def test_a_second_snapshot_numbers_what_came_after_the_first() -> None:
    """What is inside a finished scope is left out, and what follows has its number in the history."""
    digest, run = ReplayLog(writes=True), Run(id="it", workflow="w")
    inside = [
        to_event(ScopeStarted(), run_id="it", step_name="s"),
        to_event(StepStarted(attempt=1), run_id="it", step_name="s/a"),
        to_event(StepCompleted(duration_ns=1), run_id="it", step_name="s/a", output=Raw(b"1")),
        to_event(ScopeCompleted(output=Raw(b"1")), run_id="it", step_name="s"),
    ]
    digest.add(inside)
    first = digest.snapshot(run, len(inside), EPOCH)
    digest.add([to_event(StepStarted(attempt=1), run_id="it", step_name="b")])
    second = digest.snapshot(run, len(inside) + 1, EPOCH)
    assert first is not None
    assert second is not None
    assert [event.sequence for event in read_snapshot(first)] == [1, 4]
    assert [event.sequence for event in read_snapshot(second)] == [1, 4, 5]
