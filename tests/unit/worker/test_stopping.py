"""A process that stops: within its time though the store hangs, and with nothing that it took lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.engine.runner.poll_loop import PollLoop
from outlast.errors import StoreClosed, TimedOut, TryAgain, Unavailable
from outlast.model import Claim
from outlast.ports.notifier import WakeupChannel
from outlast.stores.memory import MemoryStore
from outlast.stores.memory.queue import MemoryQueue

LEASE = 3.0


class Hanging(MemoryStore):
    """A store that, when it `hangs`, answers to nothing within the time that it is given."""

    hangs = False

    async def send(self, *args: Any, timeout: float | None = None, **options: Any) -> Any:
        if self.hangs:
            await asyncio.sleep(timeout if timeout is not None else 1e9)
            raise TimedOut("no answer")
        return await super().send(*args, timeout=timeout, **options)


class Channel(WakeupChannel):
    """A wake-up channel that knows whether it is open."""

    is_open = False

    async def open(self, wake: Any) -> None:
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False

    async def send(self) -> None:
        return None

    async def settle(self, received: int, *, left: bool) -> int:
        return 0


began: asyncio.Event


@pytest.fixture(autouse=True)
def _nothing_began() -> None:
    global began
    began = asyncio.Event()


@outlast.step(queue="gpu")
async def far_and_long() -> None:
    began.set()
    await asyncio.Event().wait()


@outlast.workflow
async def goes_far() -> None:
    await far_and_long()


@pytest.mark.proves("I30")
async def test_a_store_that_hangs_does_not_keep_an_app_from_closing() -> None:
    """What cannot be told within a third of the lease is left to its end."""
    async with Hanging() as store:
        channel = Channel()
        app = outlast.App(
            store, workflows=[goes_far], steps=[far_and_long], lease=LEASE, wakeup_channel=channel
        )
        await app.open()
        await app.start(goes_far())
        await began.wait()
        store.hangs = True
        async with asyncio.timeout(60):
            await app.close()
        assert not channel.is_open


class Away(MemoryStore):
    """A store that cannot be reached for handing back."""

    async def release(self, claims: Sequence[Claim], **options: Any) -> list[bool]:
        raise TryAgain("away")


@outlast.step
async def here_and_long() -> None:
    began.set()
    try:
        await asyncio.Event().wait()
    finally:
        # Longer than it is waited for, so that its run has to be handed back.
        await asyncio.sleep(1.0)


@outlast.workflow
async def stays_here() -> None:
    await here_and_long()


async def test_a_part_that_cannot_be_closed_leaves_no_other_open() -> None:
    """The engine cannot hand back what it has, and the wake-up channel is closed all the same."""
    async with Away() as store:
        channel = Channel()
        app = outlast.App(store, workflows=[stays_here], lease=LEASE / 6, wakeup_channel=channel)
        await app.open()
        await app.start(stays_here())
        await began.wait()
        assert channel.is_open
        with pytest.raises(TryAgain):
            await app.close()
        assert not channel.is_open


class Answering(MemoryStore):
    """A store that takes what it is asked for, and answers when the test `lets` it."""

    def __init__(self) -> None:
        super().__init__()
        self.took = asyncio.Event()
        self.lets = asyncio.Event()
        self.lets.set()

    async def on_its_way(self, found: list[Any]) -> list[Any]:
        if found and not self.lets.is_set():
            self.took.set()
            await self.lets.wait()
        return found

    async def claim_runs(self, *args: Any, **options: Any) -> list[Any]:
        return await self.on_its_way(await super().claim_runs(*args, **options))

    def queue(self) -> MemoryQueue:
        queue = super().queue()
        take = queue.take_many

        async def take_many(*args: Any, **options: Any) -> list[Any]:
            return await self.on_its_way(await take(*args, **options))

        queue.take_many = take_many  # type: ignore[method-assign]
        return queue

    async def stop_in_between(self, app: outlast.App) -> None:
        """Close an app while an answer is on its way to it."""
        await self.took.wait()
        stop = PollLoop.stop

        async def stop_then_answer(daemon: PollLoop) -> None:
            if daemon.is_taking:
                asyncio.get_running_loop().call_soon(self.lets.set)
            await stop(daemon)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PollLoop, "stop", stop_then_answer)
            async with asyncio.timeout(60):
                await app.close()
        assert self.lets.is_set()


@outlast.step(queue="gpu", at_most_once=True)
async def once() -> str:
    return "done"


@outlast.workflow
async def once_far() -> str:
    return await once()


@pytest.mark.proves("I30")
async def test_a_task_that_was_on_its_way_to_who_stops_is_not_lost() -> None:
    """Its body never began, so that it is done elsewhere even if it may only be done once."""
    async with Answering() as store, outlast.App(store, workflows=[once_far]) as starter:
        worker = outlast.App(store, steps=[once], lease=3600)
        store.lets.clear()
        await worker.open()
        run = await starter.start(once_far())
        await store.stop_in_between(worker)
        async with outlast.App(store, steps=[once]), asyncio.timeout(60):
            assert await run.result() == "done"


@outlast.workflow
async def short() -> str:
    return "done"


@pytest.mark.proves("I30")
@pytest.mark.parametrize("queue", [None, "mail"])
async def test_a_run_that_was_on_its_way_to_who_stops_is_free(queue: str | None) -> None:
    """Nobody waits for a lease of somebody who has closed, whether it was claimed or admitted."""
    async with Answering() as store, outlast.App(store) as starter:
        stops = outlast.App(store, workflows=[short], queues=["mail"], lease=3600)
        store.lets.clear()
        await stops.open()
        run = await starter.start(short(), here=False, queue=queue)
        await store.stop_in_between(stops)
        async with outlast.App(store, workflows=[short], queues=["mail"]), asyncio.timeout(60):
            assert await run.result() == "done"


class Deaf(Channel):
    """A wake-up channel that cannot be opened, though it has begun to."""

    async def open(self, wake: Any) -> None:
        self.is_open = True
        raise Unavailable("nobody answers")


async def test_an_app_that_cannot_be_opened_leaves_nothing_open(tmp_path: Path) -> None:
    """The store that it has opened itself is closed, and the wake-up channel that failed is too."""
    channel = Deaf()
    app = outlast.App(f"sqlite:///{tmp_path}/store.db", workflows=[short], wakeup_channel=channel)
    with pytest.raises(Unavailable):
        await app.open()
    assert not channel.is_open
    with pytest.raises(StoreClosed):
        await app.store.find_one("r")
