"""Closing: what a run does between its failure and its undoing, beside the cases of the corpus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import outlast
from outlast.engine.replay.completion import MAX_CALLS
from outlast.errors import RunCancelled, RunEnding, RunFailed, UpdateFailed
from outlast.model.event import EventType, payload_of
from outlast.model.payloads import CompensationStarted
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes

log: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    log.clear()


@outlast.step
async def book(what: str, seconds: float = 1) -> str:
    log.append(f"book {what}")
    await takes(seconds)
    return what


@book.compensate
async def unbook(what: str) -> None:
    log.append(f"unbook {what}")


@outlast.step
async def fails(seconds: float = 3) -> None:
    await takes(seconds)
    raise ValueError("no room")


async def started(store: Store, run_id: str) -> CompensationStarted:
    """What a run has recorded that it undoes."""
    for event in await store.history(run_id):
        if event.type == EventType.COMPENSATION_STARTED:
            payload = payload_of(event)
            assert isinstance(payload, CompensationStarted)
            return payload
    raise AssertionError("nothing was undone")


@pytest.mark.proves("I20")
async def test_no_step_begins_while_a_run_is_undone() -> None:
    """A branch that would book for ever is cancelled before the first undo."""

    async def books_for_ever() -> None:
        while True:
            await book("car", 2)

    @outlast.workflow
    async def trip() -> None:
        await book("flight")
        await asyncio.gather(fails(), books_for_ever())

    async with app(trip) as testing:
        with pytest.raises(RunFailed):
            await (await testing.start(trip())).result()
    first = log.index("unbook car")
    assert not [line for line in log[first:] if line.startswith("book")]
    booked = [line.removeprefix("book ") for line in log[:first]]
    assert [line.removeprefix("unbook ") for line in log[first:]] == booked[::-1]


@pytest.mark.proves("I20")
async def test_code_that_catches_its_cancellation_comes_to_an_end() -> None:
    """It may ask for so much and then for nothing, not even if it catches every exception."""

    async def clings() -> None:
        for _ in range(3 * MAX_CALLS):
            try:
                await book("more", 0)
            except RunEnding:
                log.append("refused")
                raise
            except BaseException:  # noqa: BLE001 - it goes on, whatever comes
                log.append("caught")

    @outlast.workflow
    async def trip() -> None:
        await asyncio.gather(fails(0), clings())

    async with app(trip) as testing:
        with pytest.raises(RunFailed, match="no room"):
            await (await testing.start(trip())).result()
    assert log.count("refused") == 1
    assert MAX_CALLS <= log.count("book more") <= MAX_CALLS + 5
    assert log.count("unbook more") == log.count("book more")


@pytest.mark.proves("I20")
async def test_a_map_that_was_left_begins_no_new_items() -> None:
    """The two that run are awaited and undone; the others never begin."""

    @outlast.workflow
    async def trip() -> None:
        await asyncio.gather(
            fails(), outlast.map(slow, ["one", "two", "three", "four"], concurrency=2)
        )

    @outlast.step
    async def slow(what: str) -> str:
        log.append(f"book {what}")
        await takes(60)
        return what

    @slow.compensate
    async def unslow(what: str) -> None:
        log.append(f"unbook {what}")

    async with app(trip) as testing:
        with pytest.raises(RunFailed):
            await (await testing.start(trip(), id="r")).result()
        assert (await started(testing.store, "r")).unknown == []
    assert log == ["book one", "book two", "unbook two", "unbook one"]


@pytest.mark.proves("I20")
async def test_an_update_of_a_failed_run_is_answered() -> None:
    """Also if its handler catches its cancellation and waits for what will never come."""

    @outlast.workflow
    async def trip() -> None:
        @outlast.on_update
        async def change(_: str) -> None:
            try:
                await outlast.wait_for_signal("never")
            except asyncio.CancelledError:
                await outlast.wait_for_signal("never again")

        await book("flight", 60)
        await fails()

    async with app(trip) as testing:
        run = await testing.start(trip())
        with pytest.raises(UpdateFailed, match="the run has ended"):
            await run.update("change", "x")
        with pytest.raises(RunFailed):
            await run.result()
    assert log == ["book flight", "unbook flight"]


@pytest.mark.proves("I20")
async def test_a_step_that_was_left_is_not_tried_again() -> None:
    """Its attempt ends as it ends; nothing waits for a better one."""

    @outlast.step(retry=outlast.Retry(attempts=5, delay=10))
    async def pay() -> None:
        log.append("pay")
        await takes(60)
        raise ConnectionError("the bank is closed")

    @outlast.workflow
    async def trip() -> None:
        await asyncio.gather(fails(), pay())

    async with app(trip) as testing:
        with pytest.raises(RunFailed, match="no room"):
            await (await testing.start(trip())).result()
    assert log == ["pay"]


@pytest.mark.proves("I20")
async def test_a_step_whose_run_failed_before_it_began_never_begins() -> None:
    """It was asked for in the same commit that records the failure."""

    @outlast.workflow
    async def trip() -> None:
        async def two() -> None:
            await fails(1)
            raise AssertionError

        async def books() -> None:
            await book("flight")
            await book("car")

        await asyncio.gather(books(), two())

    async with app(trip) as testing:
        with pytest.raises(RunFailed):
            await (await testing.start(trip())).result()
    assert log == ["book flight", "unbook flight"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.proves("I20", "I10")
async def test_a_call_with_an_unknown_outcome_is_undone_by_its_key(
    kind: str, tmp_path: Path
) -> None:
    """A step that must not be repeated was cut off: what undoes such a call gets the idempotency key
    under which it ran, and its arguments."""
    keys: list[str] = []

    @outlast.step(at_most_once=True)
    async def charge(card: str, *, amount: int) -> None:
        keys.append(outlast.step_info().idempotency_key)
        await takes(3600)

    @charge.compensate(unknown=True)
    async def refund(key: str, card: str, *, amount: int) -> None:
        log.append(f"refund {card} {amount} {key == keys[0]}")

    @outlast.workflow
    async def trip() -> None:
        await book("flight")
        await charge("visa", amount=7)

    clock = VirtualClock()
    store: Store = MemoryStore(clock=clock)
    if kind == "sqlite":
        store = SqliteStore(tmp_path / "a.db", clock=clock)
    async with store:
        async with app(trip, store=store, clock=clock, drain=0) as testing:
            await testing.start(trip(), id="r")
            await clock.sleep(5)
        async with app(trip, store=store, clock=clock) as testing:
            with pytest.raises(RunFailed, match="the process died"):
                await testing.get("r").result()
            undone = await started(store, "r")
    assert undone.steps_to_undo == ["charge", "book"]
    assert undone.unknown == ["charge"]
    assert log == ["book flight", "refund visa 7 True", "unbook flight"]
    assert len(keys) == 1


@pytest.mark.proves("I20")
async def test_an_unknown_outcome_without_a_way_to_undo_it_is_listed() -> None:
    """A person has to look: the run says which."""

    @outlast.step(timeout=5)
    async def send(what: str) -> str:
        await takes(60)
        return what

    @send.compensate
    async def call_back(what: str) -> None:
        log.append("never")

    @outlast.workflow
    async def trip() -> None:
        await send("letter")

    async with app(trip) as testing:
        with pytest.raises(RunFailed):
            await (await testing.start(trip(), id="r")).result()
        undone = await started(testing.store, "r")
    assert (undone.steps_to_undo, undone.unknown) == ([], ["send"])
    assert log == []


@pytest.mark.proves("I20")
async def test_a_cancel_that_the_code_survives_still_awaits_what_runs() -> None:
    """The run completes when its step has ended, and nothing is undone."""

    @outlast.workflow
    async def trip() -> str:
        try:
            return await book("flight", 60)
        except asyncio.CancelledError:
            return "stays at home"

    async with app(trip) as testing:
        run = await testing.start(trip(), id="r")
        await testing.clock.sleep(5)
        await run.cancel()
        assert await run.result() == "stays at home"
        assert testing.clock.monotonic() == pytest.approx(60)
        told = [f"{event.type} {event.step_name}" for event in await testing.get("r").history()]
    assert told[-2:] == ["step.completed book", "workflow.completed "]
    assert log == ["book flight"]


@pytest.mark.proves("I20")
async def test_a_cancelled_run_ends_when_its_step_has_ended() -> None:
    """A step that is cut off has an unknown outcome: it is awaited, for as long as it may take."""

    @outlast.workflow
    async def trip() -> None:
        await book("flight", 60)

    async with app(trip) as testing:
        run = await testing.start(trip())
        await testing.clock.sleep(5)
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result()
        assert testing.clock.monotonic() == pytest.approx(60)
    assert log == ["book flight", "unbook flight"]


@pytest.mark.parametrize("ends", ["returns", "begins anew with"])
@pytest.mark.proves("I20")
async def test_a_run_whose_result_cannot_be_recorded_has_failed_and_is_undone(ends: str) -> None:
    """Its code has ended well, and its run has not: what it did is undone like after any failure."""

    @outlast.workflow
    async def trip(value: object = None) -> object:
        await book("flight")
        if ends != "returns":
            outlast.continue_as_new(trip({1, 2}))
        return {1, 2}

    async with app(trip) as testing:
        with pytest.raises(RunFailed, match="set"):
            await (await testing.start(trip())).result()
    assert log == ["book flight", "unbook flight"]


async def _exits() -> None:
    await book("car")
    raise SystemExit(3)


@outlast.workflow(name="trip")
async def _next_trip() -> None:
    return None


async def _continues() -> None:
    await book("car")
    outlast.continue_as_new(_next_trip())


async def _in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_continues())


@pytest.mark.proves("I20")
@pytest.mark.parametrize("ends", [_exits, _in_a_group])
async def test_whatever_a_run_fails_with_is_undone(ends: Callable[[], Awaitable[None]]) -> None:
    """Also what is no `Exception`: the run has failed, and what it did is undone."""

    @outlast.workflow
    async def trip() -> None:
        await asyncio.gather(ends(), book("room", 20))

    async with app(trip) as testing:
        with pytest.raises(RunFailed):
            await (await testing.start(trip())).result()
    assert sorted(log[:2]) == ["book car", "book room"]
    assert log[2:] == ["unbook room", "unbook car"]


@pytest.mark.proves("I20")
async def test_a_finally_gets_its_time_before_anything_is_undone() -> None:
    """It may wait for a timer and for steps; what it books is undone, too."""

    async def cleans_up() -> None:
        try:
            await outlast.wait_for_signal("never")
        finally:
            await outlast.sleep(seconds=5)
            await book("taxi")

    @outlast.workflow
    async def trip() -> None:
        await book("flight")
        await asyncio.gather(fails(), cleans_up())

    async with app(trip) as testing:
        with pytest.raises(RunFailed):
            await (await testing.start(trip())).result()
    assert log == ["book flight", "book taxi", "unbook taxi", "unbook flight"]


@pytest.mark.proves("I20")
async def test_a_queued_step_that_may_run_once_is_awaited() -> None:
    """Were its task taken back while a worker does it, its outcome would be lost, and a retry would do it
    again."""

    @outlast.step(queue="bank", at_most_once=True)
    async def charge() -> str:
        log.append("charge")
        await takes(60)
        return "charged"

    broken = True

    @outlast.step
    async def shaky() -> None:
        await takes(1)
        if broken:
            raise ValueError("no room")

    @outlast.workflow
    async def trip() -> str:
        _, charged = await asyncio.gather(shaky(), charge())
        return str(charged)

    async with app(trip, steps=[charge], queues=["bank"]) as testing:
        run = await testing.start(trip(), id="r")
        with pytest.raises(RunFailed):
            await run.result()
        broken = False
        await testing.get("r").retry()
        assert await run.result() == "charged"
    assert log == ["charge"]


@pytest.mark.proves("I14")
async def test_a_run_whose_code_failed_is_retried_with_mended_code() -> None:
    """Of what it recorded on its way out, the mended code gets the results, and none is done again."""

    @outlast.step
    async def work(what: str, seconds: float) -> str:
        log.append(what)
        await takes(seconds)
        return what

    mended = False

    async def reads() -> str:
        what = await work("short", 1)
        if not mended:
            raise KeyError(what)
        return what

    @outlast.workflow
    async def trip() -> list[str]:
        return list(await asyncio.gather(work("long", 60), reads()))

    async with app(trip) as testing:
        run = await testing.start(trip(), id="r")
        with pytest.raises(RunFailed, match="KeyError"):
            await run.result()
        mended = True
        await testing.get("r").retry()
        assert await run.result() == ["long", "short"]
    assert log == ["long", "short"]


@pytest.mark.proves("I20", "I14")
async def test_what_ends_after_its_scope_is_undone_by_another_process() -> None:
    """The scope has ended with a step left running, and the process stops: a replay looks inside."""

    async def books() -> str:
        try:
            return await book("car", 60)
        except asyncio.CancelledError:
            return "stays there"

    @outlast.workflow
    async def trip() -> None:
        await asyncio.gather(outlast.scope(books), fails())

    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(trip, store=store, clock=clock, drain=0) as testing:
        await testing.start(trip(), id="r")
        await clock.sleep(10)
    async with app(trip, store=store, clock=clock) as testing:
        with pytest.raises(RunFailed, match="no room"):
            await testing.get("r").result()
    assert log == ["book car", "book car", "unbook car"]
