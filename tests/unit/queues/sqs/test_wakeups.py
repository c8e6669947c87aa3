"""With the engine SQS only sends a wake-up: the store decides, and no message can do harm."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidId, InvalidValue, NotFound
from outlast.model import RunQuery, Status
from outlast.queues.sqs import SqsWakeups
from outlast.queues.sqs.wakeups import MAX_TURNS
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock
from tests.unit.queues.sqs.apps import process, send, waiting
from tests.unit.queues.sqs.places import Recording, client, endpoint, own_prefix
from tests.unit.queues.sqs.rough import Rough

pytestmark = pytest.mark.server
rendered: list[str] = []


@outlast.step(queue="gpu")
async def render(scene: str) -> str:
    rendered.append(scene)
    return scene.upper()


@outlast.workflow
async def film(name: str) -> list[str]:
    return [await render(f"{name}-{number}") for number in range(3)]


@outlast.workflow
async def other() -> None:
    return None


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    rendered.clear()


@pytest.fixture
def queue() -> str:
    """A queue for wake-ups that nobody else uses."""
    return f"{own_prefix()}wakeups"


async def until(holds: Callable[[], bool]) -> None:
    """Return when something holds that a thread or another task brings about."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - nobody here could tell
            await asyncio.sleep(0.01)


@pytest.mark.proves("I23")
async def test_work_goes_from_process_to_process_by_wakeups_alone(
    tmp_path: Path, queue: str
) -> None:
    """Time stands still, so that nobody looks on his own: who starts, who drives and who works find
    each other's work because they get a wake-up; and when all is done, no message is left."""
    path, clock = tmp_path / "film.db", ManualClock()
    async with (
        process(path, queue, clock=clock) as server,
        process(path, queue, clock=clock, workflows=[film]) as driver,
        process(path, queue, clock=clock, steps=[render]),
    ):
        await server.start(film("alien"), id="film-1", here=False)
        result = driver.get("film-1").result()
        assert await asyncio.wait_for(result, 100) == ["ALIEN-0", "ALIEN-1", "ALIEN-2"]
        await until(lambda: waiting(queue) == (0, 0))
    assert rendered == ["alien-0", "alien-1", "alien-2"]


@pytest.mark.proves("I23", "M-23")
async def test_lost_doubled_late_and_overtaken_wakeups_are_harmless(
    tmp_path: Path, queue: str
) -> None:
    """Two drivers and two workers, and a road on which a third of the messages is lost, doubled or
    delayed: every run ends, every step is done once, and what sends a wake-up afterwards finds nothing."""
    path = tmp_path / "films.db"
    roads = [Rough(client(), seed=seed, loses=True) for seed in range(4)]
    roles: list[dict[str, Any]] = [{"workflows": [film]}, {"steps": [render]}] * 2
    async with AsyncExitStack() as stack:
        apps = [
            await stack.enter_async_context(process(path, queue, client=road, **role))
            for road, role in zip(roads, roles, strict=True)
        ]
        runs = [await apps[number % 2 * 2].start(film(f"f{number}")) for number in range(12)]
        results = await asyncio.gather(*(run.result() for run in runs))
        assert results == [[f"F{n}-0", f"F{n}-1", f"F{n}-2"] for n in range(12)]
        before = [await apps[0].store.history(run.id) for run in runs]
        send(queue, '{"outlast":1,"wakeup":"stale"}')
        await until(lambda: waiting(queue) == (0, 0))
        assert await apps[0].store.claim_runs("looks", ttl=1) == []
        assert [await apps[0].store.history(run.id) for run in runs] == before
        page = await apps[0].store.find(RunQuery(status=frozenset({Status.COMPLETED})))
        assert len(page.items) == 12
    assert sorted(rendered) == sorted(set(rendered))
    assert len(rendered) == 36
    assert any(road.troubles for road in roads)


@pytest.mark.proves("I23")
async def test_a_lost_message_is_made_anew_from_the_store(tmp_path: Path, queue: str) -> None:
    """Who wrote the run died before it could send a wake-up. A relay that has no code for it finds it in the
    store when it sweeps, and sends a wake-up for it; whoever has the code hears that."""
    path, clock = tmp_path / "film.db", ManualClock()
    calls = Recording(client())
    async with process(path, queue, clock=clock, client=calls):
        # Both of its pollers have looked once and wait: only a sweep can find what is written now.
        await until(lambda: clock.sleepers == 2)
        async with outlast.App(f"sqlite:///{path}", clock=clock) as dead:
            await dead.start(film("jaws"), id="film-1", here=False)
        assert "send_message" not in calls.since(0)
        clock.advance(6)
        await until(lambda: "send_message" in calls.since(0))
    async with (
        process(path, queue, clock=clock, workflows=[film]) as driver,
        process(path, queue, clock=clock, steps=[render]),
    ):
        assert await asyncio.wait_for(driver.get("film-1").result(), 100) == [
            "JAWS-0",
            "JAWS-1",
            "JAWS-2",
        ]


@pytest.mark.proves("I23")
async def test_a_message_is_deleted_when_its_work_is_taken(tmp_path: Path, queue: str) -> None:
    """Not when it is heard: one who cannot take the work shows it to others again."""
    path, clock = tmp_path / "film.db", ManualClock()
    idle, able = Recording(client()), Recording(client())
    async with process(path, queue, clock=clock, client=idle) as server:
        await server.start(other(), id="o", here=False)
        await until(lambda: "change_message_visibility_batch" in idle.since(0))
        assert "delete_message_batch" not in idle.since(0)
        async with process(path, queue, clock=clock, client=able, workflows=[other]) as worker:
            await asyncio.wait_for(worker.get("o").result(), 60)
            await until(lambda: waiting(queue) == (0, 0))


def _longest_hiding(calls: Recording) -> int:
    """For how long a message was hidden when it was passed on, at most."""
    passed = [call for name, call in list(calls.made) if name.startswith("change_message")]
    return max((one["VisibilityTimeout"] for call in passed for one in call["Entries"]), default=0)


@pytest.mark.proves("I23", "I31")
async def test_work_that_nobody_can_take_keeps_nobody_busy(tmp_path: Path, queue: str) -> None:
    """Its code is nowhere: the message is passed on a few times, then more and more rarely."""
    calls = Recording(client())
    async with process(tmp_path / "o.db", queue, clock=ManualClock(), client=calls) as server:
        await server.start(other(), id="o", here=False)
        await until(lambda: _longest_hiding(calls) > 1)
    assert calls.since(0).count("send_message") == 1
    assert calls.since(0).count("receive_message") < MAX_TURNS


@pytest.mark.proves("I30", "I23")
async def test_a_stopping_process_wakes_others_for_what_it_hands_back(
    tmp_path: Path, queue: str
) -> None:
    """Another process goes on with it though no time has passed."""
    path, clock = tmp_path / "f.db", ManualClock()
    async with process(path, queue, clock=clock, workflows=[film]) as second:
        async with process(path, queue, clock=clock, workflows=[film]) as first:
            await first.start(film("up"), id="f")
        async with process(path, queue, clock=clock, steps=[render]):
            assert await asyncio.wait_for(second.get("f").result(), 60)


FOREIGN = ["<xml>not ours</xml>", '{"outlast": "no"}', '{"wakeup": "x"}', "x" * 262_000]


@pytest.mark.proves("I23")
@pytest.mark.parametrize("body", FOREIGN, ids=["text", "almost", "unsigned", "large"])
async def test_a_foreign_message_is_left_alone(
    tmp_path: Path, queue: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is hidden for a moment and never deleted, so its owner or a redrive policy can have it; it
    is told of once, and wake-ups behind it are heard."""
    path, clock = tmp_path / "o.db", ManualClock()
    with caplog.at_level(logging.WARNING, "outlast.sqs"):
        async with process(path, queue, clock=clock, workflows=[other]) as worker:
            for _ in range(3):
                send(queue, body)
            async with process(path, queue, clock=clock) as server:
                run = await server.start(other(), id="o", here=False)
                await asyncio.wait_for(worker.get(run.id).result(), 60)
            await until(lambda: waiting(queue) == (0, 3))
    told = [one for one in caplog.records if "not of outlast" in one.message]
    assert 1 <= len(told) <= 2  # once a process


@pytest.mark.proves("I23")
async def test_without_sqs_work_is_found_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wake-up channel is broken, nobody fails: the store is looked at as often as without it."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIANONE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    channel = "sqs+http://127.0.0.1:9/1/wakeups?region=x"
    url = f"sqlite:///{tmp_path}/film.db"
    async with outlast.App(url, workflows=[film], steps=[render], wakeup_channel=channel) as app:
        run = await app.start(film("jaws"))
        assert await run.result() == ["JAWS-0", "JAWS-1", "JAWS-2"]


async def test_a_wakeup_channel_is_named_by_a_url(
    tmp_path: Path, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its queue's name with options, or by its queue's own URL."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store = f"sqlite:///{tmp_path}/o.db"
    named = f"sqs://{queue}?region=eu-central-1&endpoint={endpoint()}&create=true"
    async with outlast.App(store, wakeup_channel=named) as server:
        url = client().get_queue_url(QueueName=queue)["QueueUrl"]
        at = f"sqs+{url}?region=eu-central-1&endpoint={endpoint()}"
        async with outlast.App(store, wakeup_channel=at, workflows=[other]):
            run = await server.start(other(), here=False)
            await asyncio.wait_for(run.result(), 60)


@pytest.mark.parametrize(
    "url",
    [
        "sqs://",
        "sqs://a b",
        "sqs://wakeups.fifo",
        "sqs://wakeups?colour=red",
        "sqs://wakeups?create=perhaps",
        "sqs://wakeups/more",
        "sqs://key:secret@wakeups",
        "sqs+https://",
        "sqs+https://host/",
        "sqs+https://host/1/wakeups?create=true",
        "amqp://host",
        "wakeups",
    ],
)
def test_a_url_that_names_no_wakeup_channel_is_refused(url: str) -> None:
    """Where it is written, before anything is opened, and without showing a password."""
    with pytest.raises((InvalidValue, InvalidId)) as refused:
        outlast.App(MemoryStore(), wakeup_channel=url)
    assert "secret" not in str(refused.value)


async def test_a_queue_that_cannot_send_wakeups_is_refused(queue: str) -> None:
    """One that is not there, or FIFO: said when the app is opened."""
    for channel, error in (
        (SqsWakeups(queue, client()), NotFound),
        (SqsWakeups(url="http://127.0.0.1:9/1/wakeups.fifo", client=client()), InvalidValue),
    ):
        with pytest.raises(error):
            await outlast.App(MemoryStore(), wakeup_channel=channel).open()
