"""The relay: what is due and nobody has gets a wake-up, and what was heard is settled by the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import outlast
from outlast.errors import Unavailable
from outlast.model.run_contents import Task
from outlast.ports.notifier import WakeupChannel
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock
from outlast.worker.wakeup_relay import (
    FIRST_REPEAT_S,
    LONGEST_REPEAT_S,
    NOTHING,
    Left,
    RepeatedWakeups,
    WakeupRelay,
)


class Channel(WakeupChannel):
    """A wake-up channel whose messages the test sends and counts."""

    def __init__(self) -> None:
        self.sent = self.looks = self.gone_on = self.done = 0
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
        self.received += 1
        self._unsettled += 1
        self._wake()

    async def send(self) -> None:
        if self.broken:
            raise Unavailable("nobody answers")
        self.sent += 1
        self.changed.set()

    async def settle(self, received: int, *, left: bool) -> int:
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
def channel() -> Channel:
    """The wake-up channel of the app under test."""
    return Channel()


async def swept(channel: Channel, clock: ManualClock) -> None:
    """Return when the store was looked at once more."""
    looks = channel.looks
    async with asyncio.timeout(60):
        while channel.looks == looks:
            clock.advance(6)  # it may have been between two waits
            await asyncio.sleep(0.001)


@pytest.mark.proves("I23")
@pytest.mark.parametrize("kind", ["run", "task"])
async def test_unclaimed_work_sends_a_wakeup(
    store: MemoryStore, channel: Channel, clock: ManualClock, kind: str
) -> None:
    """A run whose code is elsewhere, or a task, as soon as it is written; not before there is one,
    and not when somebody holds it."""
    async with outlast.App(store, wakeup_channel=channel) as app:
        await swept(channel, clock)
        assert channel.sent == 0
        if kind == "run":
            await app.start(nothing(), id="r", here=False)
        else:
            await store.queue().enqueue("gpu/render", [Task(id="t")])
        await channel.until(lambda: channel.sent == 1)
        if kind == "run":
            await store.claim_runs("somebody", ttl=3600)
        else:
            await store.queue().take("gpu/render", owner="somebody", visibility=3600)
        for _ in range(5):
            await swept(channel, clock)
        assert channel.sent == 1


@pytest.mark.proves("I31")
async def test_many_writes_are_one_wakeup(
    store: MemoryStore, channel: Channel, clock: ManualClock
) -> None:
    """Wake-ups are gathered off the path of the write."""
    async with outlast.App(store, wakeup_channel=channel) as app:
        await app.start(nothing(), here=False)
        await channel.until(lambda: channel.sent == 1)
        for _ in range(1000):
            store.notifier.wake()
        await channel.until(lambda: channel.sent == 2)
        await swept(channel, clock)
        assert channel.sent <= 3  # once for the thousand; once more because time has passed


@pytest.mark.proves("I23")
async def test_a_run_sends_no_wakeup_before_it_is_due(
    store: MemoryStore, channel: Channel, clock: ManualClock
) -> None:
    """Who sleeps needs nobody; when the time has come, the sweep tells."""

    @outlast.workflow
    async def later() -> None:
        await outlast.sleep(3600)

    async with outlast.App(store, workflows=[later]) as app:
        run = await app.start(later())
        while (await store.get(run.id)).owner is not None:  # noqa: ASYNC110 - until it rests
            await asyncio.sleep(0)
    async with outlast.App(store, wakeup_channel=channel):
        await swept(channel, clock)
        assert channel.sent == 0
        clock.advance(3600)
        await swept(channel, clock)
        assert channel.sent == 1


@pytest.mark.proves("I23")
async def test_what_was_heard_is_settled_by_the_store(
    store: MemoryStore, channel: Channel, clock: ManualClock
) -> None:
    """Nothing is left to do: the message is done with, and no other one is sent. Something is that
    nobody here can take: it goes on."""
    async with outlast.App(store, wakeup_channel=channel):
        channel.hear()
        await channel.until(lambda: channel.done == 1)
        async with outlast.App(store) as other:
            await other.start(nothing(), here=False)
        await channel.until(lambda: channel.sent == 1)
        channel.hear()
        await channel.until(lambda: channel.gone_on == 1)
        assert (channel.sent, channel.done) == (1, 1)


@pytest.mark.proves("I23")
async def test_a_message_wakes_those_who_look_here(store: MemoryStore, channel: Channel) -> None:
    """The run was written where no wake-up is heard; no time passes, and yet it is done."""
    async with outlast.App(store, workflows=[nothing], wakeup_channel=channel):
        wakeups, store.notifier.wake_local = store.notifier.wake_local, lambda *_, **__: None  # type: ignore[method-assign]
        async with outlast.App(store) as other:
            run = await other.start(nothing(), here=False)
        store.notifier.wake_local = wakeups  # type: ignore[method-assign]
        channel.hear()
        await asyncio.wait_for(run.result(), 60)


@pytest.mark.proves("I23")
async def test_a_wakeup_that_failed_is_sent_again(
    store: MemoryStore, channel: Channel, clock: ManualClock
) -> None:
    """The wake-up channel was out of order: the next sweep finds what is left."""
    channel.broken = True
    async with outlast.App(store, wakeup_channel=channel) as app:
        await app.start(nothing(), here=False)
        await swept(channel, clock)
        channel.broken = False
        while not channel.sent:
            await swept(channel, clock)


@pytest.mark.proves("I30")
async def test_work_handed_back_at_the_end_sends_a_wakeup(
    store: MemoryStore, channel: Channel
) -> None:
    """Who closes leaves runs that others should hear of."""
    began = asyncio.Event()

    @outlast.step
    async def long() -> None:
        began.set()
        await asyncio.Event().wait()

    @outlast.workflow
    async def slow() -> None:
        await long()

    async with outlast.App(store, workflows=[slow], wakeup_channel=channel) as app:
        await app.start(slow())
        await began.wait()
        assert channel.sent == 0
    assert channel.sent == 1
    assert store.notifier.wakeup_channel is None


async def test_opening_and_closing_twice_does_nothing(store: MemoryStore, channel: Channel) -> None:
    """A relay is a daemon like others."""
    relay = WakeupRelay(store, channel)
    for act in (relay.open, relay.open, relay.close, relay.close):
        await act()
    assert not channel.is_listening


@pytest.mark.proves("I31")
def test_insistence_grows_weary() -> None:
    """What is new gets a wake-up at once, what stays ever more rarely, and after nothing anew."""
    left: Left = (None, "t")
    insistence = RepeatedWakeups()
    times = [now for now in range(400) if insistence.wants(left, float(now))]
    assert times == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]
    assert (FIRST_REPEAT_S, LONGEST_REPEAT_S) == (1, 60)
    assert insistence.wants((None, "another"), 364.0)
    assert not insistence.wants(NOTHING, 365.0)
    assert insistence.wants((None, "another"), 365.1)
