"""A process says that it lives while it does, and nothing depends on its being heard."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import outlast
from outlast.errors import Unavailable
from outlast.model import Worker
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock
from outlast.worker.heartbeat import EXPIRES_AFTER_S, INTERVAL_S


@outlast.step(queue="far")
async def far() -> int:
    return 1


@outlast.workflow
async def job() -> str:
    return str(await outlast.wait_for_signal("go"))


async def until_listed(store: MemoryStore) -> Worker:
    """The worker, once it has spoken."""
    while not (known := await store.workers()):  # noqa: ASYNC110 - nobody sends a wake-up for it
        await asyncio.sleep(0)
    return known[0]


async def test_an_app_is_listed_while_it_is_open() -> None:
    """With what it has the code of, where it runs and how much it holds; closed, it is gone."""
    async with MemoryStore() as store:
        async with outlast.App(store, workflows=[job], steps=[far], name="shop") as app:
            worker = await until_listed(store)
            assert worker.owner.startswith("shop-")
            assert (worker.workflows, worker.queues) == (("job",), ("far/far",))
            assert worker.pid == os.getpid()
            assert worker.is_alive(await store.now())
            assert app.store is store
        assert await store.workers() == []


async def test_a_client_is_no_worker() -> None:
    """An app that has no code to run says nothing."""
    async with MemoryStore() as store, outlast.App(store):
        await asyncio.sleep(0.01)
        assert await store.workers() == []


async def test_it_speaks_again_in_time() -> None:
    """Long before it would count as dead, with what it holds by then."""
    clock = ManualClock()
    async with MemoryStore(clock=clock) as store, outlast.App(store, workflows=[job]) as app:
        first = await until_listed(store)
        await app.start(job(), id="a")
        while (await store.workers())[0].seen_at == first.seen_at:
            clock.advance(INTERVAL_S)
            await asyncio.sleep(0.001)
        second = await until_listed(store)
        assert second.started_at == first.started_at
        assert INTERVAL_S * 2 < EXPIRES_AFTER_S
        await app.get("a").signal("go", "on")


async def test_a_store_that_does_not_listen_is_no_trouble() -> None:
    """Runs go on, and the app closes, whether anybody heard of it or not."""

    class Deaf(MemoryStore):
        async def heartbeat(self, *args: Any, **options: Any) -> None:
            raise Unavailable("not now")

        async def leave(self, *args: Any, **options: Any) -> bool:
            raise Unavailable("not now")

    async with Deaf() as store, outlast.App(store, workflows=[job]) as app:
        await app.start(job(), id="a")
        await app.get("a").signal("go", "on")
        assert await app.get("a").result() == "on"
