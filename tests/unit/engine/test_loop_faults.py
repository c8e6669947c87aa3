"""Errors on the loop of a run that are no outcome of a task: the run is parked, and says why."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import outlast
from outlast.errors import RunFailed
from outlast.testing import app


@outlast.step
async def one() -> int:
    return 1


def explodes(*_: object) -> None:
    raise ValueError("boom")


@outlast.workflow
async def calls_soon() -> int:
    await one()
    asyncio.get_running_loop().call_soon(explodes)
    return await one()


@outlast.workflow
async def has_a_callback() -> int:
    task = asyncio.ensure_future(one())
    task.add_done_callback(explodes)
    await task
    return await one()


@outlast.workflow
async def exits_in_a_callback() -> int:
    await one()
    asyncio.get_running_loop().call_soon(lambda: exit("now"))
    return await one()


@pytest.mark.parametrize(
    ("workflow", "told"),
    [
        (calls_soon, "explodes on the loop of a run raised ValueError: boom"),
        (has_a_callback, "explodes on the loop of a run raised ValueError: boom"),
        (exits_in_a_callback, "raised SystemExit: now"),
    ],
)
async def test_a_callback_that_raises_parks_its_run(
    workflow: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not swallowed: the run is halted with the error, which is logged and names the callback."""
    with caplog.at_level(logging.ERROR, "outlast.engine"):
        async with app(workflow) as testing:
            run = await testing.start(workflow(), id="it")
            while (await testing.get("it").status()).status != "halted":
                await testing.clock.settle()
            record = await testing.get("it").status()
    assert run.id == "it"
    assert told in (record.error or "")
    assert "await in workflow code instead" in (record.error or "")
    assert told in caplog.text


@outlast.workflow
async def fails_in_tasks() -> int:
    async def exits() -> None:
        raise SystemExit("now")

    async def breaks() -> None:
        raise ValueError("boom")

    found = await asyncio.gather(exits(), breaks(), one(), return_exceptions=True)
    assert isinstance(found[0], SystemExit)
    assert isinstance(found[1], ValueError)
    raise ValueError("as it should")


async def test_what_a_task_raises_is_its_outcome() -> None:
    """Also what asyncio raises besides, an exit: the code that awaits it has it."""
    async with app(fails_in_tasks) as testing:
        run = await testing.start(fails_in_tasks())
        with pytest.raises(RunFailed, match="as it should"):
            await run.result()
