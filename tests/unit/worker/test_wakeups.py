"""A process hears what others send to the runs that it holds, without looking for it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import outlast
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.engine.runner.poll_loop import PollLoop
from outlast.errors import RunCancelled
from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import SystemClock
from outlast.ports.notifier import MAX_MESSAGE_BYTES, from_message, hears_all, to_message
from outlast.stores.memory import MemoryStore
from outlast.worker.task_worker import TaskPoller
from tests.unit.worker.places import KINDS, place_of

LEASE = 3600.0
"""So long that looking at every third of it would be too late."""

begun: asyncio.Event
heard: asyncio.Event


@outlast.step
async def work() -> None:
    begun.set()
    await heard.wait()


@outlast.workflow
async def works() -> None:
    try:
        await work()
    finally:
        heard.set()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.proves("I24")
async def test_a_run_that_works_hears_a_cancel_from_another_process(
    kind: str, tmp_path: Path
) -> None:
    """Its holder gets a wake-up by name, or sees that somebody has written, and its code hears of it."""
    global begun, heard
    begun, heard = asyncio.Event(), asyncio.Event()
    place = place_of(kind, tmp_path)
    async with (
        place.fresh() as store,
        place.store() as elsewhere,
        outlast.App(store, workflows=[works], lease=LEASE) as app,
    ):
        run = await app.start(works(), id="r")
        await begun.wait()
        await Client(elsewhere, codec=JsonCodec()).get("r").cancel("stop")
        ending = asyncio.ensure_future(run.result())
        while not ending.done():
            # It may not listen yet, and a wake-up that is lost does no harm.
            elsewhere.notifier.wake(WakeupKind.RUNS, runs=["r"])
            await asyncio.wait([ending], timeout=0.1)
        with pytest.raises(RunCancelled):
            await ending


class Patient(SystemClock):
    """A clock by which nobody looks again: only a wake-up wakes."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


async def test_a_wakeup_for_tasks_during_the_first_poll_is_received() -> None:
    """At first every wake-up counts, then, without rules, only those for tasks: what was counted before
    the look, for all, is not compared with what is counted after it, for tasks."""
    clock = Patient()
    async with MemoryStore(clock=clock) as store, store.queue() as queue:
        looks, again = 0, asyncio.Event()

        async def look() -> bool:
            nonlocal looks
            looks += 1
            if looks == 1:
                store.notifier.wake(WakeupKind.TASKS)
            else:
                again.set()
            return False

        before = store.notifier.wakeups_for(WakeupKind.ANY) - store.notifier.wakeups_for(
            WakeupKind.TASKS
        )
        for _ in range(1 - before):
            store.notifier.wake(WakeupKind.RUNS)
        loop = PollLoop(store, "looking", timeout_s=1.0, log=logging.getLogger("outlast"))
        TaskPoller(loop, queue, ["q"], look, timeout_s=1.0).start()
        try:
            async with asyncio.timeout(30):
                await again.wait()
        finally:
            await loop.stop()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.proves("I24")
async def test_who_sends_something_and_ends_is_heard(kind: str, tmp_path: Path) -> None:
    """A process that lives for one call sends a wake-up for it, too: what it owes is passed on as it closes."""
    place = place_of(kind, tmp_path)
    async with place.fresh() as here:
        notifier = here.notifier
        while not hears_all(notifier):
            await notifier.wait(SystemClock(), 0.05, since=notifier.wakeups)
        wakeups = notifier.wakeups_for(WakeupKind.RUNS)
        async with place.store() as elsewhere:
            await outlast.App(elsewhere, workflows=[works]).start("works", id="r", here=False)
        async with asyncio.timeout(30):
            assert await notifier.wait(Patient(), 1.0, since=wakeups, kind=WakeupKind.RUNS)


@pytest.mark.parametrize("runs", [[], ["r"], ['odd "id" ☃', "b~c/d"]])
def test_a_wakeup_travels_as_text(runs: list[str]) -> None:
    """Who sent it, what for, and which runs it is about."""
    message = to_message("me", WakeupKind.RUNS | WakeupKind.ENDS, runs)
    sender, kind, named = from_message(message)
    assert (sender, kind, sorted(named)) == ("me", WakeupKind.RUNS | WakeupKind.ENDS, sorted(runs))


def test_a_wakeup_for_very_many_names_none() -> None:
    """It would be too long; their holders look by themselves after a while."""
    message = to_message("me", WakeupKind.RUNS, [f"run-{n}" for n in range(10_000)])
    assert len(message.encode()) < MAX_MESSAGE_BYTES
    assert from_message(message) == ("me", WakeupKind.RUNS, [])


@pytest.mark.parametrize("message", ["", "me", "me x", "me 1 [1]", "me 1 {", "me 99999"])
def test_a_malformed_wakeup_is_a_wakeup(message: str) -> None:
    """Of an older outlast, or of somebody else: whoever waits looks."""
    assert from_message(message)[1]
