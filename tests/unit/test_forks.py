"""An app, a store or a queue that was opened before a fork: the child is told to open its own, closing
does nothing, and the parent does not notice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import Closed
from outlast.ports import Store
from outlast.urls import resolve

server = pytest.mark.server
PLACES = [
    "sqlite",
    pytest.param("postgres", marks=server),
    pytest.param("redis", marks=server),
]
CHILD_SECONDS = 12
FORKED = "before this process was forked"


def url_of(place: str, folder: Path) -> str:
    """Where the app or store is."""
    if place == "sqlite":
        return f"sqlite:///{folder}/forks.db"
    found = os.environ.get(f"OUTLAST_TEST_{place.upper()}")
    if not found:
        pytest.fail(f"OUTLAST_TEST_{place.upper()} is not set: run `./dev test`", pytrace=False)
    return found


@outlast.step
async def adds(a: int, b: int) -> int:
    return a + b


@outlast.workflow
async def counts(a: int) -> int:
    return await adds(a, 1)


async def in_child(work: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """What `work` gives in a forked child; an error if that takes too long."""
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        # Python itself warns of forking with threads: that is what is tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_SECONDS)
        asyncio._set_running_loop(None)  # the parent's is still marked as running in this thread
        said = asyncio.new_event_loop().run_until_complete(work())
        os.write(sending, json.dumps(said).encode())
        os._exit(0)
    os.close(sending)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    with os.fdopen(receiving) as answer:
        found = answer.read()
    assert status == 0, f"the child has not come to its end: {status}"
    said_there: list[str] = json.loads(found)
    return said_there


async def said(*calls: Awaitable[Any]) -> list[str]:
    """The errors of calls, by name and text."""
    found = []
    for call in calls:
        try:
            await call
            found.append("no error")
        except Closed as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("place", PLACES)
async def test_an_inherited_app(place: str, tmp_path: Path) -> None:
    """Every call says what to do, closing returns at once, also twice, and the parent goes on."""
    async with outlast.App(url_of(place, tmp_path), workflows=[counts]) as app, asyncio.timeout(60):
        assert await (await app.start(counts(1))).result() == 2

        async def child() -> list[str]:
            found = await said(app.start(counts(1)), app.get("r").status(), app.open())
            await app.close()
            await app.close()
            return found + await said(app.start(counts(1)))

        answers = await in_child(child)
        assert [FORKED in answer for answer in answers] == [True] * 4, answers
        for n in range(3):
            assert await (await app.start(counts(n))).result() == n + 1


@pytest.mark.parametrize("place", PLACES)
async def test_an_inherited_store_and_its_queue(place: str, tmp_path: Path) -> None:
    """The same without an app, each with the error of its kind."""
    store: Store = resolve(url_of(place, tmp_path))
    async with store, store.queue() as queue, asyncio.timeout(60):
        await store.now()

        async def child() -> list[str]:
            found = await said(store.find_one("r"), queue.len("q"))
            await queue.close()
            await store.close()
            return found + await said(store.find_one("r"))

        first, second, last = await in_child(child)
        assert first.startswith("StoreClosed")
        assert second.startswith("QueueClosed")
        assert last.startswith("StoreClosed")
        assert FORKED in first
        assert FORKED in second
        await store.find_one("r")
        assert await queue.len("q") >= 0


@pytest.mark.parametrize("place", PLACES[1:])
async def test_a_child_opens_an_app_of_its_own(place: str, tmp_path: Path) -> None:
    """Once it has closed what it inherited, or without: it works beside the parent."""
    url = url_of(place, tmp_path)
    async with outlast.App(url, workflows=[counts]) as app, asyncio.timeout(60):

        async def child() -> list[str]:
            await app.close()
            async with outlast.App(url, workflows=[counts]) as own:
                return [str(await (await own.start(counts(4))).result(timeout=20))]

        assert await in_child(child) == ["5"]
        assert await (await app.start(counts(1))).result() == 2
