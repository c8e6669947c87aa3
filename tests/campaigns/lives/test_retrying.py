"""Retrying a run while its children are being cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import outlast
from outlast.errors import Busy, RunFailed, StepFailed
from outlast.testing import At, app, crash_everywhere
from outlast.testing import sleep as takes

broken: set[str] = set()


@outlast.step
async def book(what: str) -> str:
    return what


@book.compensate
async def unbook(what: str) -> None:
    await takes(100)


@outlast.workflow
async def kid() -> None:
    await book("seat")
    await outlast.wait_for_signal("never")


@outlast.step
async def shaky() -> None:
    await takes(1)
    if broken:
        raise ConnectionError("broken")


@outlast.workflow
async def parent() -> str:
    try:
        await shaky()
    except StepFailed:
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await kid()
        raise
    return "mended"


async def test_a_child_that_is_being_cancelled_has_to_end_first() -> None:
    """It may still complete, and then the same call must not begin it again. Without patience the error says
    to retry later, and nothing was changed."""
    broken.add("shaky")
    async with app(parent, kid) as opened:
        await opened.start(parent(), id="p")
        with pytest.raises(RunFailed):
            await opened.get("p").result()
        broken.clear()
        with pytest.raises(Busy, match="still being cancelled"):
            await opened.get("p").retry(timeout=5)
        assert (await opened.get("p").status()).status.terminal
        await opened.get("p").retry(timeout=1000)
        assert await opened.get("p").result() == "mended"


again: set[str] = set()
"""What ran after the retry."""


@outlast.step
async def work(what: str, seconds: float) -> str:
    if not broken:
        again.add(what)
    await takes(seconds)
    return what


@outlast.workflow
async def beside() -> str:
    async def branch() -> str:
        await work("first", 2)
        await outlast.sleep(60)
        return await work("second", 2)

    results = await asyncio.gather(shaky(), branch(), return_exceptions=True)
    if isinstance(results[0], BaseException):
        raise results[0]
    return str(results[1])


async def test_what_a_retry_hands_on_survives_a_crash_anywhere() -> None:
    """Results that wait for the retried life are taken once, wherever its process dies: no step that has
    been recorded runs again."""

    async def mended(run: outlast.RunHandle[Any]) -> None:
        broken.clear()
        await run.retry()

    def setup() -> None:
        broken.add("shaky")
        again.clear()

    sweep = await crash_everywhere(
        beside, setup=setup, observe=lambda: sorted(again), actions=[At(400, mended)], sample=25
    )
    assert sweep.ending.observed == []
    assert sweep.ending.runs["run"].result == '"second"'
