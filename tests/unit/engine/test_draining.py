"""Draining: a process that is to stop lets its steps end first."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidValue, RunFailed
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    ran.clear()


@outlast.step
async def work(name: str, seconds: float) -> str:
    ran.append(name)
    await takes(seconds)
    return name


@outlast.step(at_most_once=True)
async def send(name: str, seconds: float) -> str:
    ran.append(name)
    await takes(seconds)
    return name


@outlast.workflow
async def mails() -> list[str]:
    return [await send("first", 3), await send("second", 3)]


@outlast.workflow
async def works() -> list[str]:
    return list(await asyncio.gather(work("short", 3), work("long", 60)))


@outlast.workflow
async def maps() -> list[str]:
    return await outlast.map(count, [1, 2, 3, 4], concurrency=2)


@outlast.step
async def count(number: int) -> str:
    ran.append(str(number))
    await takes(3)
    return str(number)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.mark.proves("I10", "I30")
async def test_what_ends_within_the_drain_never_runs_again(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """Not even a step that must not be repeated is lost; the next one has not begun, and begins where
    the run goes on."""
    async with app(mails, store=store, clock=clock) as testing:
        await testing.start(mails(), id="r")
        await clock.sleep(1)
    assert ran == ["first"]
    assert (await store.get("r")).owner is None
    assert clock.monotonic() == pytest.approx(3)
    async with app(mails, store=store, clock=clock) as testing:
        assert await testing.get("r").result() == ["first", "second"]
    assert ran == ["first", "second"]


@pytest.mark.proves("I30")
async def test_what_outlasts_the_drain_is_handed_back(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """It runs again elsewhere; what ended before is on record, also if the process dies now."""
    async with app(works, store=store, clock=clock) as testing:
        await testing.start(works(), id="r")
        await clock.sleep(1)
        closing = asyncio.create_task(testing.close())
        await clock.sleep(4)
        told = [f"{event.type} {event.step_name}" for event in await store.history("r")]
        assert "step.completed 0/work" in told
        await closing
    assert clock.monotonic() == pytest.approx(6)
    async with app(works, store=store, clock=clock) as testing:
        assert await testing.get("r").result() == ["short", "long"]
    assert ran == ["short", "long", "long"]


@outlast.workflow
async def works_and_waits(how: str) -> list[str]:
    @outlast.on_update
    def answer(value: str) -> str:
        return value

    waiting = outlast.wait_for_signal("go", str) if how == "signal" else outlast.halt("go?", str)
    return list(await asyncio.gather(work("short", 3), waiting))


@pytest.mark.proves("I16", "I30")
@pytest.mark.parametrize("how", ["signal", "halt"])
async def test_what_is_sent_during_the_drain_reaches_the_next_process(
    clock: VirtualClock, store: MemoryStore, how: str
) -> None:
    """The process that stops has read it and delivers nothing more: the run stays runnable."""
    async with app(works_and_waits, store=store, clock=clock) as testing:
        run = await testing.start(works_and_waits(how), id="r")
        await clock.sleep(1)
        closing = asyncio.create_task(testing.close())
        await clock.sleep(1)
        await (run.signal("go", "gone") if how == "signal" else run.resume("gone"))
        await closing
    async with app(works_and_waits, store=store, clock=clock) as testing:
        assert await testing.get("r").result(timeout=60) == ["short", "gone"]
    assert ran == ["short"]


@pytest.mark.proves("I30")
async def test_the_items_of_a_map_end_and_no_new_ones_begin(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """Two run, two are left to the next process."""
    async with app(maps, store=store, clock=clock) as testing:
        await testing.start(maps(), id="r")
        await clock.sleep(1)
    assert ran == ["1", "2"]
    async with app(maps, store=store, clock=clock) as testing:
        assert await testing.get("r").result() == ["1", "2", "3", "4"]
    assert ran == ["1", "2", "3", "4"]


@pytest.mark.proves("I29", "I30")
async def test_leases_are_kept_alive_meanwhile() -> None:
    """A drain may be longer than a lease: no other process takes the run over."""
    clock = VirtualClock(look_again_after=0.5)
    store = MemoryStore(clock=clock)
    async with (
        app(mails, store=store, clock=clock, lease=2, drain=60) as testing,
        app(mails, store=store, clock=clock, lease=2) as other,
    ):
        await testing.start(mails(), id="r")
        await clock.sleep(0.5)
        await testing.close()
        assert await other.get("r").result() == ["first", "second"]
    assert ran == ["first", "second"]


@pytest.mark.proves("I30")
async def test_a_drain_is_cut_short(clock: VirtualClock, store: MemoryStore) -> None:
    """`hurry`, as a second signal to stop does."""
    async with app(works, store=store, clock=clock, drain=3600) as testing:
        await testing.start(works(), id="r")
        await clock.sleep(1)
        closing = asyncio.create_task(testing.close())
        await clock.sleep(10)
        testing.hurry()
        await closing
        assert clock.monotonic() == pytest.approx(11)
    assert (await store.get("r")).owner is None


@pytest.mark.proves("I30")
async def test_an_app_without_running_steps_closes_at_once(
    clock: VirtualClock, store: MemoryStore
) -> None:
    """A run that waits is handed back without any time passing."""

    @outlast.workflow
    async def waits() -> None:
        await outlast.sleep(seconds=1)

    async with app(waits, store=store, clock=clock, drain=3600) as testing:
        await testing.start(waits(), id="r")
        await clock.settle()
    assert clock.monotonic() == 0


@pytest.mark.proves("I30")
async def test_queued_steps_end_too(clock: VirtualClock, store: MemoryStore) -> None:
    """Their worker takes no more tasks, and reports what has ended."""

    @outlast.step(queue="mail", at_most_once=True)
    async def post() -> str:
        ran.append("post")
        await takes(3)
        return "posted"

    @outlast.workflow
    async def posts() -> str:
        return await post()

    async with app(posts, store=store, clock=clock) as driver:
        async with app(store=store, clock=clock, steps=[post]):
            run = await driver.start(posts(), id="r")
            await clock.sleep(1)
        assert await run.result() == "posted"
    assert ran == ["post"]


class AnswersLate(MemoryStore):
    """Writes the start of a run, and answers when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.has_written, self.may_answer = asyncio.Event(), asyncio.Event()

    async def commit(self, commits: Any, **options: Any) -> Any:
        outcomes = await super().commit(commits, **options)
        if any(commit.create is not None for commit in commits):
            self.has_written.set()
            await self.may_answer.wait()
        return outcomes


@outlast.step(at_most_once=True)
async def post(name: str) -> str:
    ran.append(name)
    return name


@outlast.workflow
async def posts_twice() -> list[str]:
    return [await post("first"), await post("second")]


@pytest.mark.proves("I10", "I30")
@pytest.mark.parametrize("drain", [0, 60])
async def test_a_run_that_is_being_started_when_its_process_stops_is_handed_back(
    drain: float,
) -> None:
    """Its start is durable, and the answer arrives in the drain: nothing of it begins in a process that stops
    or has stopped, and no other one waits for its lease."""
    store = AnswersLate()
    stops = outlast.App(store, workflows=[posts_twice], drain=drain)
    await stops.open()
    starting = asyncio.create_task(stops.start(posts_twice(), id="r"))
    await store.has_written.wait()
    closing = asyncio.create_task(stops.close())
    await asyncio.wait([closing], timeout=0.05)
    assert not closing.done()  # it would leave the run to its lease
    store.may_answer.set()
    await asyncio.wait_for(starting, 60)
    await asyncio.wait_for(closing, 60)
    assert (await store.get("r")).owner is None
    assert ran == []
    async with outlast.App(store, workflows=[posts_twice]) as other, asyncio.timeout(20):
        assert await other.get("r").result() == ["first", "second"]


class Occupied(ThreadPoolExecutor):
    """Threads of an app, of which there is one, and that is occupied until `free` is called."""

    def __init__(self) -> None:
        super().__init__(1)
        self.asked = asyncio.Event()
        self._lets_go = threading.Event()
        super().submit(self._lets_go.wait, 60)

    def submit(self, *call: Any, **kwargs: Any) -> Any:
        self.asked.set()
        return super().submit(*call, **kwargs)

    def free(self) -> None:
        """Let the thread take what waits for it."""
        self._lets_go.set()
        self.shutdown(wait=True)


@outlast.step(at_most_once=True)
def print_letter() -> str:
    ran.append("letter")
    return "printed"


@outlast.step(at_most_once=True, timeout=3600)
def print_in_time() -> str:
    ran.append("letter")
    return "printed"


@outlast.step(at_most_once=True, queue="print")
def print_far() -> str:
    ran.append("letter")
    return "printed"


@outlast.workflow
async def prints(how: str) -> str:
    steps = {"here": print_letter, "timed": print_in_time, "far": print_far}
    return await steps[how]()


@pytest.mark.proves("I10", "I30")
@pytest.mark.parametrize("how", ["here", "timed", "far"])
async def test_a_step_that_waits_for_a_thread_has_not_begun(how: str) -> None:
    """All threads of a process that stops are occupied: a plain step that must not be repeated was not
    called, so that the next process calls it."""
    store, threads = MemoryStore(), Occupied()
    code: dict[str, Any] = {"workflows": [prints], "steps": [print_far]}
    async with outlast.App(store, **code, threads=threads, lease=1, drain=0) as stops:
        await stops.start(prints(how), id="r")
        await asyncio.wait_for(threads.asked.wait(), 60)
    threads.free()
    assert ran == []
    async with outlast.App(store, **code) as other, asyncio.timeout(60):
        assert await other.get("r").result() == "printed"
    assert ran == ["letter"]


@pytest.mark.proves("I10", "I30")
@pytest.mark.parametrize("how", ["here", "timed", "far"])
async def test_a_step_that_a_thread_has_taken_has_begun(how: str) -> None:
    """The same step in the midst of its work is not repeated: how it ended is not known."""
    store, lets_go, prints_now = MemoryStore(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def print_slowly() -> str:
        ran.append("letter")
        loop.call_soon_threadsafe(prints_now.set)
        assert lets_go.wait(60)
        return "printed"

    far = how == "far"
    options: dict[str, Any] = (
        {"queue": "print"} if far else {"timeout": 3600 if how == "timed" else None}
    )
    slow: Any = outlast.step(at_most_once=True, **options)(print_slowly)

    @outlast.workflow
    async def prints_slowly() -> str:
        return str(await slow())

    code: dict[str, Any] = {"workflows": [prints_slowly], "steps": [slow] if far else []}
    async with outlast.App(store, **code, lease=1, drain=0) as stops:
        await stops.start(prints_slowly(), id="r")
        await asyncio.wait_for(prints_now.wait(), 60)
    async with outlast.App(store, **code) as other, asyncio.timeout(60):
        with pytest.raises(RunFailed, match="Interrupted"):
            await other.get("r").result()
    lets_go.set()
    assert ran == ["letter"]


def test_a_drain_is_a_time() -> None:
    """Anything else is refused where it is said."""
    with pytest.raises(InvalidValue, match="drain"):
        outlast.App("memory:", drain=-1)
