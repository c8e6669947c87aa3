"""What simulations and sweeps have found in the engine, each as a story of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

import outlast
from outlast import testing
from outlast.client import Client, RunHandle
from outlast.codecs import JsonCodec
from outlast.errors import UnknownOutcome
from outlast.model import Status
from outlast.stores.memory import MemoryStore
from outlast.testing import At, VirtualClock, crash_everywhere
from outlast.testkit.wrapped_store import WrappedStore

T = TypeVar("T")
ran: list[str] = []


@outlast.step
async def work(seconds: float) -> None:
    ran.append("work")
    await testing.sleep(seconds)


@outlast.workflow
async def works_twice(seconds: float) -> bool:
    before = outlast.now()
    await work(seconds)
    await work(seconds)
    return outlast.now() - before >= timedelta(days=7)


async def pause(run: RunHandle[Any]) -> None:
    await run.pause()


async def resume(run: RunHandle[Any]) -> None:
    await run.resume()


@pytest.mark.proves("I12", "I16")
async def test_a_pause_survives_every_crash() -> None:
    """A run that was asked to pause while a step runs rests after it for a week, also if the
    process that was asked dies before the step has ended."""
    sweep = await crash_everywhere(
        works_twice, 60, actions=[At(5, pause), At(8 * 86400, resume)], strict=True
    )
    assert sweep.ending.runs["run"].result == "true"


class SlowInbox(WrappedStore):
    """An inbox that takes a second to be read."""

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if name == "inbox":
            await self.clock.sleep(1)
        return await call()


@pytest.mark.proves("I8")
async def test_a_result_that_comes_while_a_pause_is_read_is_kept() -> None:
    """A body that ends while its run is about to be parked is recorded, not run again."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    elsewhere = Client(store, codec=JsonCodec())
    ran.clear()
    async with testing.app(works_twice, store=SlowInbox(store), clock=clock) as app:
        run = await app.start(works_twice(10.5), id="run")
        await clock.sleep(5)
        await elsewhere.get("run").pause()  # it is noticed with the renewal at 10 s
        await clock.sleep(60)
        assert (await run.status()).status is Status.PAUSED
        await run.resume()
        await run.result()
    assert ran == ["work", "work"]


class HiccupStore(WrappedStore):
    """A store whose every other read fails."""

    reads = 0

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if name in {"next_runnable_at", "claim_runs", "renew"}:
            self.reads += 1
            if self.reads % 2:
                raise UnknownOutcome(f"{name} may or may not have happened")
        return await call()


@pytest.mark.proves("I24")
async def test_a_store_that_hiccups_does_not_stop_an_engine() -> None:
    """An engine whose looks and renewals fail now and then goes on all the same."""
    clock = VirtualClock()
    store = HiccupStore(MemoryStore(clock=clock))
    async with testing.app(works_twice, store=store, clock=clock) as app:
        run = await app.start(works_twice(40))
        assert await run.result(timeout=600) is False
        assert store.reads > 4


@pytest.mark.proves("I24")
async def test_a_run_whose_code_is_elsewhere_costs_no_core() -> None:
    """An engine does not look for a run that it cannot run a thousand times a second."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with testing.app(works_twice, store=store, clock=clock) as app:
        await app.start(works_twice(5), id="run")
        await clock.sleep(1)

    @outlast.workflow
    async def another() -> None:
        pass

    async with testing.app(another, store=store, clock=clock):
        before = clock.jumps
        await clock.sleep(100)
        assert clock.jumps - before < 150
