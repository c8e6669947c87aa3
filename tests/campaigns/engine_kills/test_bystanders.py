"""A step during which the process dies three times is given up (I10). Whom that must not hit."""

from __future__ import annotations

import asyncio
import os
import signal
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

import outlast
from outlast.stores.memory import MemoryStore
from tests.stores.sqlite_processes.crew import Member

begun = asyncio.Event()
calls = 0


@outlast.step
async def linger() -> str:
    global calls
    calls += 1
    begun.set()
    if calls <= 3:
        await asyncio.Event().wait()  # longer than this version of the program is deployed
    return "done"


@outlast.workflow
async def long() -> str:
    return await linger()


@pytest.mark.proves("I10")
async def test_a_long_step_outlasts_any_number_of_deploys() -> None:
    """An app that is closed hands back what is under way; that is nobody's fault."""
    async with MemoryStore() as store:
        for _ in range(3):
            async with outlast.App(store, workflows=[long]) as app:
                begun.clear()
                await app.start(long(), id="long")
                await begun.wait()
        async with outlast.App(store, workflows=[long]) as app:
            assert await app.get("long").result(timeout=60) == "done"


# -- a poison step and its neighbours -------------------------------------------------------------


@outlast.step
async def honest(number: int) -> int:
    begun.set()
    await asyncio.sleep(0.1)  # work
    return number


@outlast.step
async def poison() -> None:
    await begun.wait()
    os.kill(os.getpid(), signal.SIGKILL)


@outlast.workflow
async def good(number: int) -> int:
    return await honest(number)


@outlast.workflow
async def bad() -> None:
    await poison()


def live(pipe: Pipe, folder: str) -> list[str]:
    """Run five good workflows and a bad one; how they end."""

    async def work() -> list[str]:
        url = f"sqlite:///{folder}/store.db"
        async with outlast.App(url, workflows=[good, bad], lease=0.5) as app:
            ids = [f"good-{number}" for number in range(5)]
            for number, id in enumerate(ids):
                await app.start(good(number), id=id)
            await app.start(bad(), id="bad")
            runs = [app.get(id) for id in (*ids, "bad")]
            await asyncio.gather(*(run.result() for run in runs), return_exceptions=True)
            return [str((await run.status()).status) for run in runs]

    return asyncio.run(work())


@pytest.mark.proves("I10")
def test_a_poison_step_does_not_take_its_neighbours_along(tmp_path: Path) -> None:
    """The step that kills the process ends in failure; those that ran beside it end well."""
    for _ in range(20):
        member = Member(live, (str(tmp_path),))
        try:
            statuses = member.pipe.recv()
        except EOFError:
            continue  # it was killed by its step
        finally:
            member.kill()
        assert statuses == [*["completed"] * 5, "failed"]
        return
    pytest.fail("the poison step is tried again and again")
