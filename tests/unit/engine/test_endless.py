"""Waits without an end, and waits that are no time at all."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidValue, RunCancelled
from outlast.model import EventType, Status
from outlast.testing import app

ENDLESS: list[float] = [math.inf, 1e12, 1e300, sys.maxsize]


async def limits(seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await outlast.wait_for_signal("nothing")


async def watches(seconds: float) -> None:
    waiting = asyncio.ensure_future(outlast.wait_for_signal("nothing"))
    await asyncio.wait([waiting], timeout=seconds)


WAITS: dict[str, Callable[[Any], Awaitable[object]]] = {
    "asyncio.sleep": asyncio.sleep,
    "asyncio.timeout": limits,
    "asyncio.wait": watches,
    "sleep": outlast.sleep,
    "sleep in days": lambda days: outlast.sleep(days=days),
    "wait_for": lambda seconds: outlast.wait_for_signal("nothing", timeout=seconds),
}


@outlast.workflow
async def waits(how: str, number: int) -> str:
    """It is asked now and then what it does, and waits otherwise."""

    @outlast.on_update
    def greet(name: str) -> str:
        return f"hello {name}"

    await WAITS[how](ENDLESS[number])
    return "it came"


@pytest.mark.parametrize("how", WAITS)
async def test_a_wait_without_an_end(how: str) -> None:
    """As with asyncio, infinity and what is beyond all years never come: the run leaves memory, is not woken
    by the clock, answers, and can be cancelled."""
    for number in range(len(ENDLESS)):
        async with app(waits) as testing:
            run = await testing.start(waits(how, number))
            await testing.clock.sleep(365 * 86_400)
            record = await testing.get(run.id).status()
            assert (record.status, record.owner) == (Status.WAITING, None)
            assert record.runnable_at is None
            assert await run.update("greet", "ann", str) == "hello ann"
            await run.cancel("enough")
            with pytest.raises(RunCancelled):
                await run.result()
            history = await testing.get(run.id).history()
        assert EventType.TIMER_STARTED not in [event.type for event in history]


async def test_it_waits_on_in_the_next_process(tmp_path: Path) -> None:
    """A replay waits for the same, and records nothing else."""
    place = f"sqlite:///{tmp_path}/shop.db"
    async with outlast.App(place, workflows=[waits]) as first:
        run = await first.start(waits("asyncio.sleep", 0), id="r")
        assert await run.update("greet", "ann", str) == "hello ann"
    async with outlast.App(place, workflows=[waits]) as second:
        assert await second.get("r").update("greet", "bob", str) == "hello bob"
        await second.get("r").cancel()
        with pytest.raises(RunCancelled):
            await second.get("r").result(timeout=math.inf)


@outlast.workflow
async def until_the_end_of_dates() -> str:
    try:
        async with asyncio.timeout(5):
            await outlast.sleep_until(datetime.max.replace(tzinfo=UTC))
    except TimeoutError:
        return "so long"
    return "it came"


async def test_the_last_of_all_moments() -> None:
    """It can be named, and is waited for."""
    async with app(until_the_end_of_dates) as testing:
        assert await (await testing.start(until_the_end_of_dates())).result() == "so long"


@outlast.workflow
async def tries(how: str, number: int) -> str:
    bad: list[Any] = [math.nan, "5", timedelta(5)]
    try:
        await WAITS[how](bad[number])
    except (InvalidValue, ValueError) as refused:  # newer Pythons refuse a sleep of nan themselves
        return str(refused)
    return "it came"


async def test_what_is_no_time_to_wait() -> None:
    """A typed error says what to write, and the workflow may go on."""
    async with app(tries) as testing:
        for how in WAITS:
            told = await (await testing.start(tries(how, 0))).result()
            assert "nan" in told.lower()
            assert how == "asyncio.sleep" or "use a number, or math.inf for ever" in told
        for how in ("sleep", "sleep in days", "wait_for"):
            told = await (await testing.start(tries(how, 1))).result()
            assert "'5'" in told
        told = await (await testing.start(tries("sleep in days", 2))).result()
        assert "timedelta" in told
    for odd in (-math.inf, -1):
        with pytest.raises(InvalidValue, match="negative"):
            await outlast.sleep(odd)
    moment: Any = 5
    with pytest.raises(InvalidValue, match="a datetime with a time zone"):
        await outlast.sleep_until(moment)


async def test_a_client_that_waits_for_ever_or_for_no_time() -> None:
    """None and infinity are the same to it; what is no number is refused."""
    async with outlast.App("memory:", workflows=[waits]) as client:
        run = await client.start(waits("sleep", 0))
        odd: Any
        for odd in (math.nan, "5"):
            with pytest.raises(InvalidValue, match="None to wait for ever"):
                await run.result(timeout=odd)
        assert await run.update("greet", "ann", str, timeout=math.inf) == "hello ann"


def test_a_retry_that_would_never_come() -> None:
    """It is refused where it is declared: a step that fails then could not say when it is tried again."""
    bad: list[dict[str, Any]] = [
        {"delay": math.inf},
        {"delay": 1e12},
        {"backoff": math.inf, "delay": 0},
    ]
    for options in bad:
        with pytest.raises(InvalidValue, match="would never happen"):
            outlast.Retry(attempts=3, **options)
    patient = outlast.Retry(attempts=2000, max_delay=math.inf, jitter=1)
    assert patient.wait(1999, OSError()) is not None
