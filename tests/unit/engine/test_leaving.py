"""Leaving: steps that nobody waits for any more, and apps that close."""

from __future__ import annotations

import asyncio
import gc
import inspect
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import outlast
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.engine.runner.driver_pool import EMBEDDED_DRAIN_S
from outlast.model.run import Status
from outlast.model.run_contents import Item
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testing.virtual_clock import START

heard: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_heard() -> None:
    heard.clear()


@outlast.step
async def works_long() -> str:
    try:
        await takes(600)
    except asyncio.CancelledError:
        heard.append("cut off")
        raise
    heard.append("done")
    return "done"


@outlast.step
async def what_was_heard() -> list[str]:
    return list(heard)


@outlast.workflow
async def loses_patience() -> list[str]:
    try:
        async with asyncio.timeout(10):
            await works_long()
    except TimeoutError:
        await outlast.sleep(1)
    return await what_was_heard()


async def test_a_step_that_nobody_waits_for_is_cut_off() -> None:
    """Its body is cancelled as soon as it is on record that the code has given it up."""
    async with app(loses_patience) as testing:
        run = await testing.start(loses_patience())
        assert await run.result() == ["cut off"]


class Silent(MemoryStore):
    """A store that takes long to tell what is in an inbox."""

    async def inbox(self, *args: Any, **options: Any) -> list[Item]:
        await self.clock.sleep(300)
        return await super().inbox(*args, **options)


async def test_a_step_that_nobody_waits_for_is_cut_off_before_a_look_that_takes_long() -> None:
    """What it does meanwhile nobody wants."""
    clock = VirtualClock()
    store = Silent(clock=clock)
    elsewhere = Client(store, codec=JsonCodec())
    cut_at: list[timedelta] = []

    @outlast.step
    async def long() -> None:
        try:
            await takes(600)
        finally:
            cut_at.append(clock.now() - START)

    @outlast.step
    async def fails() -> None:
        await takes(10)
        await elsewhere.get("it").signal("look")  # the app hears of it
        raise ValueError("no")

    @outlast.workflow
    async def pair() -> None:
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(long())
                group.create_task(fails())

    async with app(pair, store=store, clock=clock) as testing:
        run = await testing.start(pair(), id="it")
        await run.result()
    assert cut_at == [timedelta(seconds=10)]


@outlast.step
async def clean_up() -> None:
    heard.append("cleaned up")


async def group_with_an_end(holder: list[object]) -> None:
    """Its caller holds it, and it holds what its caller holds: only a collection frees it."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(outlast.sleep(days=2))
            await outlast.sleep(days=1)
    finally:
        await clean_up()


@outlast.workflow
async def has_a_helper() -> None:
    holder: list[object] = []
    helping = group_with_an_end(holder)
    holder.append(helping)
    await helping


@pytest.mark.proves("I14")
async def test_helpers_of_code_that_is_thrown_out_do_not_act_later() -> None:
    """A coroutine that another one awaits is closed with it, and not by the garbage collector:
    there its steps would be just functions, and their effects real."""
    async with app(has_a_helper) as testing:
        await testing.start(has_a_helper(), id="it")
        await testing.clock.settle()
        assert (await testing.get("it").status()).owner is None
        gc.collect()
        assert heard == []
        await testing.get("it").result()
    assert heard == ["cleaned up"]


@outlast.workflow
async def waits_for_it() -> str:
    return await works_long()


@pytest.mark.proves("I30")
async def test_an_app_that_closes_hands_its_runs_back() -> None:
    """What is under way is cut off when the drain is over, and nobody's from then on: the next app
    need not wait for the lease to end."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(waits_for_it, store=store, clock=clock) as testing:
        await testing.start(waits_for_it(), id="it")
        await clock.settle()
        assert (await store.get("it")).owner is not None
    left = await store.get("it")
    assert left.owner is None
    assert left.status is not Status.FAILED
    assert heard == ["cut off"]
    begun = clock.now()
    async with app(waits_for_it, store=store, clock=clock) as testing:
        assert await testing.get("it").result() == "done"
    assert (clock.now() - begun).total_seconds() == 600
    assert begun == START + timedelta(seconds=EMBEDDED_DRAIN_S)


@pytest.mark.proves("I30")
async def test_an_app_does_not_wait_for_ever_for_a_step_that_will_not_end() -> None:
    """A body that ignores that it is cancelled cannot keep the run: it is handed back all the
    same, and what the body does then is nobody's."""
    begun, let_go = asyncio.Event(), asyncio.Event()

    @outlast.step
    async def clings() -> None:
        begun.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    @outlast.workflow
    async def has_one_that_clings() -> None:
        await clings()

    store = MemoryStore()
    try:
        async with outlast.App(store, workflows=[has_one_that_clings], lease=0.3) as closing:
            await closing.start(has_one_that_clings(), id="it")
            await begun.wait()
        assert (await store.get("it")).owner is None
    finally:
        let_go.set()


@outlast.workflow
async def cleans_up() -> None:
    try:
        await outlast.sleep(days=1)
    finally:
        await clean_up()


@pytest.mark.proves("I14")
async def test_a_run_that_is_dropped_before_its_first_turn_does_not_act() -> None:
    """Its code has begun by then: it is thrown out like any other."""
    async with app(cleans_up) as testing:
        await testing.start(cleans_up(), id="it")
        driving = testing._engine.drivers.ending("it")
        assert isinstance(driving, asyncio.Task)
        code = driving.get_coro()
        assert inspect.iscoroutine(code)
        assert inspect.getcoroutinestate(code) == inspect.CORO_CREATED
        driving.cancel()
        del driving, code
        await testing.clock.settle()
        gc.collect()
        assert heard == []
