"""With the engine SQS only rings: the store decides, and no message can do harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidValue, NotFound
from outlast.model import RunQuery, Status
from outlast.ports.clock import Clock, SystemClock
from outlast.queues.sqs import SqsDoorbell
from outlast.queues.sqs.client import SqsClient
from outlast.stores.sqlite import SqliteStore
from outlast.testing.clock import ManualClock
from tests.sqs.places import Recording, client, own_prefix
from tests.sqs.rough import Rough

pytestmark = pytest.mark.server
rendered: list[str] = []


@outlast.step(queue="gpu")
async def render(scene: str) -> str:
    rendered.append(scene)
    return scene.upper()


@outlast.workflow
async def film(name: str) -> list[str]:
    return [await render(f"{name}-{number}") for number in range(3)]


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    rendered.clear()


@pytest.fixture
def bell_queue() -> str:
    """A queue for rings that nobody else uses."""
    return f"{own_prefix()}bell"


@asynccontextmanager
async def process(
    path: Path, queue: str, *, clock: Clock, client: SqsClient, **options: Any
) -> AsyncIterator[outlast.App]:
    """What a process of its own would have: a store, a doorbell, an app."""
    async with (
        SqliteStore(path, clock=clock) as store,
        SqsDoorbell(queue, client, create=True, pause=0.02) as bell,
    ):
        store.notifier = bell
        async with outlast.App(store, **options) as app:
            yield app


@pytest.mark.proves("I23", "M-12")
async def test_a_ring_reaches_another_process(bell_queue: str) -> None:
    """Whoever waits is woken by a message; no time has to pass on its clock."""
    async with (
        SqsDoorbell(bell_queue, client(), create=True) as here,
        SqsDoorbell(bell_queue, client()) as there,
    ):
        waiting = asyncio.ensure_future(there.wait(ManualClock(), 60, since=there.rings))
        await asyncio.sleep(0)
        here.ring()
        assert await asyncio.wait_for(waiting, 60)


@pytest.mark.proves("I23")
async def test_work_goes_from_process_to_process_by_rings_alone(
    tmp_path: Path, bell_queue: str
) -> None:
    """Time stands still, so that nobody looks on his own: driver and worker find each other's work
    because they are rung for."""
    clock, path = ManualClock(), tmp_path / "film.db"
    async with (
        process(path, bell_queue, clock=clock, client=client(), workflows=[film]) as driver,
        process(path, bell_queue, clock=clock, client=client(), steps=[render]),
    ):
        run = await driver.start(film, "alien", id="film-1")
        assert await asyncio.wait_for(run.result(), 100) == ["ALIEN-0", "ALIEN-1", "ALIEN-2"]
    assert rendered == ["alien-0", "alien-1", "alien-2"]


@pytest.mark.proves("I23", "M-23")
async def test_lost_doubled_late_and_overtaken_rings_are_harmless(
    tmp_path: Path, bell_queue: str
) -> None:
    """Two drivers and two workers, and a road on which a third of the messages is lost, doubled or
    delayed: every run ends, every step is done once, and what rings afterwards finds nothing."""
    path = tmp_path / "films.db"
    roads = [Rough(client(), seed=seed, loses=True) for seed in range(4)]
    roles: list[dict[str, Any]] = [{"workflows": [film]}, {"steps": [render]}] * 2
    async with AsyncExitStack() as stack:
        apps = [
            await stack.enter_async_context(
                process(path, bell_queue, clock=SystemClock(), client=road, **role)
            )
            for road, role in zip(roads, roles, strict=True)
        ]
        runs = [await apps[number % 2 * 2].start(film, f"f{number}") for number in range(12)]
        results = await asyncio.gather(*(run.result() for run in runs))
        assert results == [[f"F{n}-0", f"F{n}-1", f"F{n}-2"] for n in range(12)]
        before = [await apps[0].store.history(run.id) for run in runs]
        for app in apps:
            app.store.notifier.ring()  # stale: there is nothing to be done
            assert await app.store.claim_runs("looks", ttl=1) == []
        assert [await apps[0].store.history(run.id) for run in runs] == before
        page = await apps[0].store.find(RunQuery(status=frozenset({Status.COMPLETED})))
        assert len(page.items) == 12
    assert sorted(rendered) == sorted(set(rendered))
    assert len(rendered) == 36
    assert any(road.troubles for road in roads)


@pytest.mark.proves("I23")
async def test_without_sqs_work_is_found_by_looking(tmp_path: Path) -> None:
    """The doorbell is broken, nobody fails: the store is looked at all the same."""
    bell = SqsDoorbell(url="http://127.0.0.1:9/1/bell", endpoint="http://127.0.0.1:9", region="x")
    async with SqliteStore(tmp_path / "film.db") as store, bell:
        store.notifier = bell
        async with outlast.App(store, workflows=[film], steps=[render]) as app:
            run = await app.start(film, "jaws")
            assert await run.result() == ["JAWS-0", "JAWS-1", "JAWS-2"]


@pytest.mark.proves("I31")
async def test_many_rings_are_few_messages(bell_queue: str) -> None:
    """Rings are gathered off the path of the write: a thousand of them are one message or two."""
    calls = Recording(client())
    async with SqsDoorbell(bell_queue, calls, create=True, pause=60) as bell:
        for _ in range(1000):
            bell.ring()
        assert bell.rings == 1000
        while "send_message" not in calls.since(0):  # noqa: ASYNC110 - a thread sends it
            await asyncio.sleep(0)
    assert calls.since(0).count("send_message") == 1


@pytest.mark.proves("I23")
async def test_a_message_of_ones_own_is_handed_on(bell_queue: str) -> None:
    """Who rings has looked already: its message is for others, and is deleted if nobody takes it."""
    calls = Recording(client())
    async with SqsDoorbell(bell_queue, calls, create=True, pause=0) as bell:
        waiting = asyncio.ensure_future(bell.wait(ManualClock(), 60, since=bell.rings + 1))
        bell.ring()
        bell.ring()
        while "delete_message_batch" not in calls.since(0):
            if waiting.done():
                waiting = asyncio.ensure_future(bell.wait(ManualClock(), 60, since=bell.rings))
            await asyncio.sleep(0)
        assert "change_message_visibility_batch" in calls.since(0)
        assert bell.rings == 2
        waiting.cancel()


@pytest.mark.proves("I23")
async def test_a_foreign_message_is_a_ring_like_any_other(bell_queue: str) -> None:
    """Whatever stands in the queue: somebody looks, and the message is gone."""
    calls = Recording(client())
    async with SqsDoorbell(bell_queue, calls, create=True) as bell:
        waiting = asyncio.ensure_future(bell.wait(ManualClock(), 60, since=bell.rings))
        url = client().get_queue_url(QueueName=bell_queue)["QueueUrl"]
        client().send_message(QueueUrl=url, MessageBody="<xml>not ours</xml>")
        assert await asyncio.wait_for(waiting, 60)
        while "delete_message_batch" not in calls.since(0):  # noqa: ASYNC110 - a thread does
            await asyncio.sleep(0)


@pytest.mark.proves("I23")
async def test_a_queue_that_cannot_ring_is_refused(bell_queue: str) -> None:
    """One that is not there, or FIFO, or a pause that is none: said when it is opened."""
    with pytest.raises(NotFound):
        await SqsDoorbell(bell_queue, client()).open()
    with pytest.raises(InvalidValue, match="standard"):
        await SqsDoorbell(url="http://127.0.0.1:9/1/bell.fifo", client=client()).open()
    with pytest.raises(InvalidValue):
        SqsDoorbell(pause=-1)
