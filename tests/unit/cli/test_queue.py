"""The rules of a queue, seen and changed by an operator."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from outlast.cli.main import Exit
from outlast.model import Delivery, Task, Worker
from outlast.model.ids import new_id
from outlast.ports.queue import Queue
from outlast.ports.store import Store
from outlast.urls import resolve
from tests.stores.postgres.places import ask, direct
from tests.stores.redis.servers import SINGLE, own_prefix, url_of
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.stage import environment, records

T = TypeVar("T")


def test_rules_are_set_shown_and_audited(outlast: Invoke) -> None:
    """What is named changes, the rest stays, and it is written down who did it."""
    assert outlast("queue", "set", "mail", "--concurrency", "5", "--rate", "100/60").exit_code == 0
    done = outlast("queue", "set", "mail", "--key-concurrency", "2", "--weight", "acme=3")
    [policy] = records(done.stdout)
    assert policy == {
        "queue": "mail",
        "concurrency": 5,
        "key_concurrency": 2,
        "rate": {"limit": 100, "per": 60.0},
        "weights": {"acme": 3.0},
    }
    outlast("queue", "pause", "mail")
    [stats] = records(outlast("queue", "show", "mail").stdout)
    assert (stats["blocked_by"], stats["policy"]["paused"]) == ("paused", True)
    outlast("queue", "resume", "mail")
    outlast("queue", "set", "mail", "--rate", "none")
    log = records(outlast("queue", "log", "mail").stdout)
    assert len(log) == 5
    assert "rate" not in log[0]["policy"]
    assert all("@" in change["by"] for change in log)
    [policy] = records(outlast("queue", "drop", "mail").stdout)
    assert policy == {"queue": "mail"}
    [stats] = records(outlast("queue", "show", "mail").stdout)
    assert stats["policy"] is None


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--concurrency", "0"), "paused=True"),
        (("--concurrency", "many"), "use a number, or none"),
        (("--rate", "x/y"), "100/60"),
        (("--rate", "1/0"), "at most a year"),
        (("--weight", "acme"), "KEY=3"),
        (("--weight", "acme=0"), "a weight of 0"),
        ((), "no limit is given"),
    ],
)
def test_impossible_rules(outlast: Invoke, args: tuple[str, ...], told: str) -> None:
    """A sentence that says what to write, an exit code, and nothing has changed."""
    done = outlast("queue", "set", "mail", *args)
    assert done.exit_code == Exit.USAGE
    assert told in done.stderr
    [stats] = records(outlast("queue", "show", "mail").stdout)
    assert stats["policy"] is None


STUDIO = """
import asyncio, os, outlast

@outlast.step(queue="gpu", key=lambda film: film)
async def render(film: str) -> str:
    return film

@outlast.workflow
async def produce(film: str) -> str:
    return await render(film)

async def main() -> None:
    async with outlast.App(os.environ["STUDIO_STORE"], workflows=[produce]) as app:
        await app.start(produce("heist"), id="film")
        notifier = app.store.notifier
        while True:
            wakeups = notifier.wakeups
            if (await app.get("film").status()).wait_kind == "task":
                return
            await notifier.wait(app.store.clock, 1, since=wakeups)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "url", [None, *(pytest.param(kind, marks=pytest.mark.server) for kind in ("postgres", "redis"))]
)
def test_why_looks_for_a_queued_step_in_its_queue(
    outlast: Invoke, shop: Path, monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    """A queue that is paused, that nobody serves, that is full; a step that a worker has, that was
    handed back, that died: each is told, with what to type, on every store."""
    place, name = "sqlite:///outlast.db", f"cli{new_id().replace('-', '')}"
    if url == "postgres":
        asyncio.run(ask(f'CREATE DATABASE "{name}"'))
        place = f"{direct().rpartition('/')[0]}/{name}"
    elif url == "redis":
        place = f"{url_of(SINGLE)}?prefix={own_prefix()}"
    monkeypatch.setenv("OUTLAST_STORE", place)

    def why(told: str, command: str) -> None:
        [reason] = records(outlast("why", "film").stdout)
        assert told in reason["why"]
        assert command in reason["commands"]

    async def at(act: Callable[[Store, Queue], Awaitable[T]]) -> T:
        async with resolve(place) as store, store.queue() as queue:
            return await act(store, queue)

    async def take(_: Store, queue: Queue) -> Delivery:
        found = await queue.take("gpu/render", owner="w1", visibility=600)
        assert found is not None
        return found

    async def serve(store: Store, _: Queue) -> None:
        await store.heartbeat(Worker(owner="w1", queues=("gpu/render",)), 600)

    async def another(_: Store, queue: Queue) -> Delivery:
        await queue.enqueue("gpu/other", [Task(queue="gpu/other", key="heist")])
        found = await queue.take("gpu/other", owner="w1", visibility=600)
        assert found is not None
        return found

    outlast("queue", "pause", "gpu")
    (shop / "studio.py").write_text(STUDIO)
    subprocess.run(
        [sys.executable, "studio.py"], cwd=shop, env=environment(STUDIO_STORE=place), check=True
    )
    why("Step 'render' waits since", "outlast queue resume gpu")
    why("in queue 'gpu', which is paused.", "outlast queue show gpu")

    outlast("queue", "resume", "gpu")
    why("which no live worker with the step's code serves", "outlast worker MODULE:APP")
    asyncio.run(at(serve))
    why("no worker has taken it. Ready there: 1, in flight: 0.", "outlast workers")

    other = asyncio.run(at(another))
    outlast("queue", "set", "gpu", "--concurrency", "1")
    why("has 1 in flight and allows 1 at once", "outlast queue set gpu --concurrency N")
    outlast("queue", "set", "gpu", "--concurrency", "none", "--key-concurrency", "1")
    why("allows 1 of the key 'heist' at once", "outlast queue set gpu --key-concurrency N")
    asyncio.run(at(lambda _, queue: queue.ack(other.claim)))

    taken = asyncio.run(at(take))
    why(
        "Worker 'w1' has taken step 'render' from queue 'gpu', and holds it until",
        "outlast workers",
    )
    asyncio.run(at(lambda _, queue: queue.nack(taken.claim)))
    why("no worker has taken it", "outlast queue show gpu")
    again = asyncio.run(at(take))
    why("from queue 'gpu' (delivery 2), and holds it until", "outlast workers")
    asyncio.run(at(lambda _, queue: queue.nack(again.claim, requeue=False)))
    why("is dead in queue 'gpu' since", f"outlast dead redrive gpu/render {again.task.id}")
    for asked in ([], ["gpu"], ["gpu/render"]):
        [dead] = records(outlast("dead", "ls", *asked).stdout)
        assert dead["task"]["id"] == again.task.id
    assert outlast("dead", "ls", "other").stdout == ""
    [redriven] = records(outlast("dead", "redrive", "gpu/render", again.task.id).stdout)
    assert redriven["redriven"] == 1
    why("no worker has taken it", "outlast queue show gpu")
    if url == "postgres":
        asyncio.run(ask(f'DROP DATABASE "{name}" WITH (FORCE)'))


def test_a_queue_name_with_a_slash(outlast: Invoke) -> None:
    """Rules are those of the queue, not of one of its steps."""
    done = outlast("queue", "pause", "mail/send")
    assert done.exit_code == Exit.USAGE
    assert "slash" in done.stderr
