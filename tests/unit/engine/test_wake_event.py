"""The wake-up that wakes a run: no wake-up is lost, whoever else has waited before."""

from __future__ import annotations

import asyncio

import pytest

from outlast.engine.runner.poll_loop import WakeEvent


async def test_a_wakeup_before_the_wait_counts_once() -> None:
    """Two wake-ups are one: whoever hears them looks at all that has come."""
    event = WakeEvent()
    event.set()
    event.set()
    await event.wait()
    waiting = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    await waiting


@pytest.mark.proves("I24")
async def test_a_wakeup_for_a_cancelled_waiter_is_kept() -> None:
    """It may come just when nobody waits any more: the next one hears it."""
    event = WakeEvent()
    waiting = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    event.set()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    async with asyncio.timeout(60):
        await event.wait()


@pytest.mark.proves("I24")
async def test_a_cancelled_waiter_does_not_take_the_event_from_the_next() -> None:
    """It may get to run only when the next one waits already."""
    event = WakeEvent()
    before = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    before.cancel()
    asyncio.get_running_loop().call_later(0.01, event.set)
    async with asyncio.timeout(60):
        await event.wait()
    assert before.cancelled()
