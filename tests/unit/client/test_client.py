"""A client opens a URL, starts runs without their code, and reaches each by its handle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

import outlast
from outlast import App, Client
from outlast.errors import NotFound
from outlast.model.run import Status


@outlast.step
async def price(product: str) -> Decimal:
    return Decimal("9.50")


@outlast.workflow(name="client_order")
async def order(product: str, amount: int = 1) -> Decimal:
    outlast.publish(product=product)
    total = amount * await price(product)
    answer = await outlast.wait_for_signal("approved", bool)
    return total if answer else Decimal(0)


@outlast.workflow
async def twice(left: int) -> int:
    await outlast.wait_for_signal("go")
    if left:
        outlast.continue_as_new(twice(left - 1))
    return left


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.server),
        pytest.param("redis", marks=pytest.mark.server),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store, which others may use too."""
    place = f"client{uuid4().hex[:8]}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    if request.param == "postgres":
        return os.environ["OUTLAST_TEST_POSTGRES"]
    base = os.environ["OUTLAST_TEST_REDIS"]
    return f"{base}{'&' if '?' in base else '?'}prefix={place}"


async def test_a_client_starts_by_name_and_reaches_runs_by_their_handles(url: str) -> None:
    """Without the code and without an engine: start, status, signal, result, find, count, history, delete."""
    id = f"order-{uuid4().hex[:8]}"
    async with App(url, workflows=[order]), Client(url) as client:
        run = await client.start("client_order", ["Momo"], {"amount": 2}, id=id)
        async for event in run.events(follow=True):
            if event.type == "signal.waiting":
                break
        view = await run.status()
        assert (view.id, view.workflow, view.status) == (id, "client_order", Status.WAITING)
        assert view.published == {"product": "Momo"}
        await client.get(id).signal("approved", True)
        assert Decimal(await run.result(timeout=timedelta(seconds=30))) == Decimal("19.00")
        assert [one.id async for one in client.find("workflow:client_order")] == [id]
        done = await run.status()
        assert done.status is Status.COMPLETED
        assert json.loads(json.dumps(done.to_dict()))["id"] == id
        assert msgspec.json.decode(msgspec.json.encode(done))["status"] == "completed"
        assert [event.type for event in await run.history()][-1] == "workflow.completed"
        assert await run.delete()
        with pytest.raises(NotFound):
            await run.status()


async def test_a_handle_follows_the_next_life(tmp_path: Path) -> None:
    """After `continue_as_new` it reaches the life that has the id now."""
    url = f"sqlite:///{tmp_path}/runs.db"
    async with App(url, workflows=[twice]) as app, Client(url) as client:
        run = await app.start(twice(1), id="t")
        handle = client.get("t")
        before = (await handle.status()).uid
        await handle.signal("go")
        await handle.signal("go")
        assert await run.result(timeout=30) == 0
        after = await handle.status()
        assert after.uid != before
        assert after.input == {"left": 0}
        assert after.result == 0


async def test_the_other_acts_are_on_the_handle(tmp_path: Path) -> None:
    """Pause, resume, cancel, terminate and fork."""
    url = f"sqlite:///{tmp_path}/runs.db"
    async with App(url, workflows=[order]) as app:
        run = await app.start(order("Momo"), id="o")
        await run.pause(timeout=timedelta(seconds=10))
        await run.resume()
        fork = await run.fork("price", id="f")
        await fork.signal("approved", True)
        assert await fork.result(timeout=30) == Decimal("9.50")
        await run.cancel()
        with pytest.raises(outlast.errors.RunCancelled):
            await run.result(timeout=30)
        other = await app.start(order("Bea"), id="b")
        await other.terminate()
        assert (await other.status()).status is Status.CANCELLED


def test_a_client_loads_no_engine(tmp_path: Path) -> None:
    """A web process that only starts and reads pays for no worker and for no other store."""
    code = f"""
import asyncio, sys, outlast
async def main():
    async with outlast.Client("sqlite:///{tmp_path}/runs.db") as client:
        run = await client.start("order", ["Momo"], id="o")
        await run.status()
asyncio.run(main())
heavy = ("outlast.engine.runner", "outlast.engine.steps", "outlast.worker", "outlast.app", "outlast.cli.",
    "outlast.stores.postgres", "outlast.stores.redis", "outlast.queues")
print([name for name in sys.modules if name.startswith(heavy)])
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
