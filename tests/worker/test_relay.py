"""The relay: what is due and nobody has is rung for, and what was heard is settled by the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import outlast
from outlast.errors import Unavailable
from outlast.model.task import Task
from outlast.ports.notifier import WakeupChannel
from outlast.stores.memory import MemoryStore
from outlast.testing.clock import ManualClock
from outlast.worker.wakeup_relay import (
    FIRST_AGAIN,
    LONGEST_AGAIN,
    NOTHING,
    Left,
    RepeatedWakeups,
    WakeupRelay,
)


class Bell(WakeupChannel):
    """A doorbell whose messages the test sends and counts."""

    def __init__(self) -> None:
        self.rung = self.looks = self.gone_on = self.done = 0
        self.broken = False
        self.changed = asyncio.Event()
        self._unsettled = 0

    async def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.is_listening = True

    async def close(self) -> None:
        self.is_listening = False

    def hear(self) -> None:
        """A message comes."""
        self.heard += 1
        self._unsettled += 1
        self._wake()

    async def ring(self) -> None:
        if self.broken:
            raise Unavailable("nobody answers")
        self.rung += 1
        self.changed.set()

    async def settle(self, heard: int, *, left: bool) -> int:
        self.looks += 1
        settled, self._unsettled = self._unsettled, 0
        if left:
            self.gone_on += settled
        else:
            self.done += settled
        self.changed.set()
        return settled if left else 0

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds that the relay brings about."""
        async with asyncio.timeout(60):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


@outlast.workflow
async def nothing() -> None:
    return None


@pytest.fixture
def clock() -> ManualClock:
    """Time stands still until it is moved."""
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    """A store that several apps share."""
    return MemoryStore(clock=clock)


@pytest.fixture
def bell() -> Bell:
    """The doorbell of the app under test."""
    return Bell()


async def swept(bell: Bell, clock: ManualClock) -> None:
    """Return when the store was looked at once more."""
    looks = bell.looks
    async with asyncio.timeout(60):
        while bell.looks == looks:
            clock.advance(6)  # it may have been between two waits
            await asyncio.sleep(0.001)


@pytest.mark.proves("I23")
@pytest.mark.parametrize("kind", ["run", "task"])
async def test_what_nobody_has_is_rung_for(
    store: MemoryStore, bell: Bell, clock: ManualClock, kind: str
) -> None:
    """A run whose code is elsewhere, or a task, as soon as it is written; not before there is one,
    and not when somebody holds it."""
    async with outlast.App(store, doorbell=bell) as app:
        await swept(bell, clock)
        assert bell.rung == 0
        if kind == "run":
            await app.start(nothing, id="r", here=False)
        else:
            await store.queue().enqueue("gpu/render", [Task(id="t")])
        await bell.until(lambda: bell.rung == 1)
        if kind == "run":
            await store.claim_runs("somebody", ttl=3600)
        else:
            await store.queue().take("gpu/render", owner="somebody", visibility=3600)
        for _ in range(5):
            await swept(bell, clock)
        assert bell.rung == 1


@pytest.mark.proves("I31")
async def test_many_writes_are_one_ring(store: MemoryStore, bell: Bell, clock: ManualClock) -> None:
    """Rings are gathered off the path of the write."""
    async with outlast.App(store, doorbell=bell) as app:
        await app.start(nothing, here=False)
        await bell.until(lambda: bell.rung == 1)
        for _ in range(1000):
            store.notifier.ring()
        await bell.until(lambda: bell.rung == 2)
        await swept(bell, clock)
        assert bell.rung <= 3  # once for the thousand; once more because time has passed


@pytest.mark.proves("I23")
async def test_a_run_is_not_rung_for_before_it_is_due(
    store: MemoryStore, bell: Bell, clock: ManualClock
) -> None:
    """Who sleeps needs nobody; when the time has come, the sweep tells."""

    @outlast.workflow
    async def later() -> None:
        await outlast.sleep(3600)

    async with outlast.App(store, workflows=[later]) as app:
        run = await app.start(later)
        while (await store.get(run.id)).owner is not None:  # noqa: ASYNC110 - until it rests
            await asyncio.sleep(0)
    async with outlast.App(store, doorbell=bell):
        await swept(bell, clock)
        assert bell.rung == 0
        clock.advance(3600)
        await swept(bell, clock)
        assert bell.rung == 1


@pytest.mark.proves("I23")
async def test_what_was_heard_is_settled_by_the_store(
    store: MemoryStore, bell: Bell, clock: ManualClock
) -> None:
    """Nothing is left to do: the message is done with, and no other one is sent. Something is that
    nobody here can take: it goes on."""
    async with outlast.App(store, doorbell=bell):
        bell.hear()
        await bell.until(lambda: bell.done == 1)
        async with outlast.App(store) as other:
            await other.start(nothing, here=False)
        await bell.until(lambda: bell.rung == 1)
        bell.hear()
        await bell.until(lambda: bell.gone_on == 1)
        assert (bell.rung, bell.done) == (1, 1)


@pytest.mark.proves("I23")
async def test_a_message_wakes_those_who_look_here(store: MemoryStore, bell: Bell) -> None:
    """The run was written where no ring is heard; no time passes, and yet it is done."""
    async with outlast.App(store, workflows=[nothing], doorbell=bell):
        rings, store.notifier.wake = store.notifier.wake, lambda *_, **__: None  # type: ignore[method-assign]
        async with outlast.App(store) as other:
            run = await other.start(nothing, here=False)
        store.notifier.wake = rings  # type: ignore[method-assign]
        bell.hear()
        await asyncio.wait_for(run.result(), 60)


@pytest.mark.proves("I23")
async def test_a_ring_that_failed_is_rung_again(
    store: MemoryStore, bell: Bell, clock: ManualClock
) -> None:
    """The doorbell was out of order: the next sweep finds what is left."""
    bell.broken = True
    async with outlast.App(store, doorbell=bell) as app:
        await app.start(nothing, here=False)
        await swept(bell, clock)
        bell.broken = False
        while not bell.rung:
            await swept(bell, clock)


@pytest.mark.proves("I30")
async def test_what_is_handed_back_at_the_end_is_rung_for(store: MemoryStore, bell: Bell) -> None:
    """Who closes leaves runs that others should hear of."""
    began = asyncio.Event()

    @outlast.step
    async def long() -> None:
        began.set()
        await asyncio.Event().wait()

    @outlast.workflow
    async def slow() -> None:
        await long()

    async with outlast.App(store, workflows=[slow], doorbell=bell) as app:
        await app.start(slow)
        await began.wait()
        assert bell.rung == 0
    assert bell.rung == 1
    assert store.notifier.doorbell is None


async def test_opening_and_closing_twice_does_nothing(store: MemoryStore, bell: Bell) -> None:
    """A relay is a daemon like others."""
    relay = WakeupRelay(store, bell)
    for act in (relay.open, relay.open, relay.close, relay.close):
        await act()
    assert not bell.is_listening


@pytest.mark.proves("I31")
def test_insistence_grows_weary() -> None:
    """What is new is rung for at once, what stays ever more rarely, and after nothing anew."""
    left: Left = (None, "t")
    insistence = RepeatedWakeups()
    times = [now for now in range(400) if insistence.wants(left, float(now))]
    assert times == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]
    assert (FIRST_AGAIN, LONGEST_AGAIN) == (1, 60)
    assert insistence.wants((None, "another"), 364.0)
    assert not insistence.wants(NOTHING, 365.0)
    assert insistence.wants((None, "another"), 365.1)
