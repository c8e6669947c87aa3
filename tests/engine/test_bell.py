"""The bell that wakes a run: no ring is lost, whoever else has waited before."""

from __future__ import annotations

import asyncio

import pytest

from outlast.engine.steps.wake_event import WakeEvent


async def test_a_ring_before_the_wait_counts_once() -> None:
    """Two rings are one: whoever hears them looks at all that has come."""
    bell = WakeEvent()
    bell.ring()
    bell.ring()
    await bell.wait()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    bell.ring()
    await waiting


@pytest.mark.proves("I24")
async def test_a_ring_for_one_who_is_cancelled_is_kept() -> None:
    """It may come just when nobody waits any more: the next one hears it."""
    bell = WakeEvent()
    waiting = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    bell.ring()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    async with asyncio.timeout(60):
        await bell.wait()


@pytest.mark.proves("I24")
async def test_one_who_was_cancelled_does_not_take_the_bell_from_the_next() -> None:
    """It may get to run only when the next one waits already."""
    bell = WakeEvent()
    before = asyncio.create_task(bell.wait())
    await asyncio.sleep(0)
    before.cancel()
    asyncio.get_running_loop().call_later(0.01, bell.ring)
    async with asyncio.timeout(60):
        await bell.wait()
    assert before.cancelled()
