"""Retrying a run while its children are being cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import outlast
from outlast.errors import Busy, RunFailed, StepFailed
from outlast.testing import app
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
    await outlast.wait_for("never")


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
                await outlast.child(kid)
        raise
    return "mended"


async def test_a_child_that_is_being_cancelled_has_to_end_first() -> None:
    """It may still complete, and then the same call must not begin it again. Without patience the error says
    to retry later, and nothing was changed."""
    broken.add("shaky")
    async with app(parent, kid) as opened:
        await opened.start(parent, id="p")
        with pytest.raises(RunFailed):
            await opened.result("p")
        broken.clear()
        with pytest.raises(Busy, match="still being cancelled"):
            await opened.retry("p", timeout=5)
        assert (await opened.get("p")).status.terminal
        await opened.retry("p", timeout=1000)
        assert await opened.result("p") == "mended"
