"""Steps in threads and processes, with time limits and reports."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import outlast
from outlast.codecs import JsonCodec, Zlib
from outlast.errors import StepFailed
from outlast.model.event import payload_of
from outlast.model.payloads import StepProgress
from outlast.ports.codec import Codec
from outlast.testing import app
from outlast.testing import sleep as takes


@outlast.step(retry=outlast.Retry(attempts=3, delay=0, jitter=0))
def counts_in_a_thread(to: int) -> list[int]:
    """It reports from its thread, and goes on where it was."""
    seen = outlast.last_heartbeat(list[int]) or []
    for number in range(len(seen), to):
        seen.append(number)
        outlast.heartbeat(seen)
        if number == 2 and outlast.step_info().attempt == 1:
            raise ConnectionError("cut off")
    return seen


@outlast.workflow
async def counts(to: int) -> list[int]:
    return await counts_in_a_thread(to)


@pytest.mark.proves("I10")
async def test_a_plain_step_reports_from_its_thread() -> None:
    """What it reports is recorded in order, and the next attempt reads the last of it."""
    async with app(counts) as testing:
        run = await testing.start(counts(6))
        assert await run.result() == [0, 1, 2, 3, 4, 5]
        history = await testing.get(run.id).history()
    reports = [payload_of(event) for event in history if event.type == "step.progress"]
    assert [report.attempt for report in reports if isinstance(report, StepProgress)] == [
        1, 1, 1, 2, 2, 2,
    ]  # fmt: skip


@pytest.mark.proves("I10")
async def test_an_attempt_that_is_over_is_not_heard_any_more() -> None:
    """A thread that was given up for its time limit lives on, but its reports are another's."""
    go_on = threading.Event()
    spoken = threading.Event()

    @outlast.step(timeout=60, retry=outlast.Retry(attempts=2, delay=0, jitter=0))
    def lingers() -> str:
        if outlast.step_info().attempt == 1:
            go_on.wait(10)
            outlast.heartbeat("from the first attempt")
            spoken.set()
            return "too late"
        go_on.set()
        spoken.wait(10)
        return str(outlast.last_heartbeat())

    @outlast.workflow
    async def waits() -> str:
        return await lingers()

    async with app(waits) as testing:
        testing.clock.patience = 0.2
        run = await testing.start(waits())
        assert await run.result() == "None"
        history = await testing.get(run.id).history()
    assert "step.progress" not in [event.type for event in history]


@outlast.step(process=True, timeout=60)
def where_am_i(factor: int) -> int:
    """A process of its own."""
    return os.getpid() * factor


@outlast.step(process=True)
def falls_over() -> None:
    """Its process ends without a word."""
    os._exit(7)


@pytest.mark.proves("I10")
async def test_a_step_in_a_process_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    """Its result comes back as JSON, its process ends without a word, and if it ends too soon, that
    is an error like any other."""

    @outlast.workflow
    async def asks() -> list[str]:
        there = await where_am_i(1)
        try:
            await falls_over()
        except StepFailed as failure:
            return [str(there != os.getpid()), failure.error]
        return []

    async with app(asks) as testing:
        elsewhere, error = await (await testing.start(asks())).result()
    assert elsewhere == "True"
    assert "its process ended with code 7" in error
    assert capfd.readouterr() == ("", "")


@outlast.step(process=True, retry=outlast.Retry(attempts=2, delay=0, jitter=0))
def reports_from_elsewhere(names: list[str]) -> list[str]:
    """It knows what it is, prints what it likes, and its next attempt knows what it reported."""
    context = outlast.step_info()
    print("something that is nobody's business")
    if context.attempt == 1:
        outlast.heartbeat({"done": names})
        raise ConnectionError("cut off")
    seen = outlast.last_heartbeat(dict[str, list[str]]) or {}
    return [*seen["done"], context.idempotency_key]


@pytest.mark.proves("I9", "I10")
@pytest.mark.parametrize("codec", [JsonCodec(), JsonCodec() | Zlib(1)], ids=["json", "zlib"])
async def test_a_step_elsewhere_knows_what_it_is(codec: Codec) -> None:
    """Whatever form its values have in the store."""

    @outlast.workflow
    async def asks() -> list[str]:
        return await reports_from_elsewhere(["ann", "bob"] * 20)

    async with app(asks, codec=codec) as testing:
        run = await testing.start(asks(), id="r")
        uid = (await testing.get("r").status()).uid
        key = f"{uid}/reports_from_elsewhere"
        assert await run.result() == [*(["ann", "bob"] * 20), key]


@pytest.mark.proves("I9")
async def test_a_step_knows_what_it_is() -> None:
    """Its run, its key, its attempt, and a key to pass on to whatever it calls."""

    @outlast.step
    async def tells() -> list[str]:
        info = outlast.step_info()
        await takes(1)
        return [info.run_id, info.key, str(info.attempt), info.idempotency_key]

    @outlast.workflow
    async def asks() -> list[str]:
        await tells()
        return await tells()

    async with app(asks) as testing:
        run = await testing.start(asks(), id="it")
        uid = (await testing.get("it").status()).uid
        assert await run.result() == ["it", "tells#2", "1", f"{uid}/tells#2"]


@given(
    failures=st.integers(1, 9_999),
    delay=st.floats(0, 1000),
    backoff=st.floats(1, 10),
    most=st.floats(0, 100_000),
    jitter=st.floats(0, 1),
)
def test_a_wait_grows_up_to_its_limit(
    failures: int, delay: float, backoff: float, most: float, jitter: float
) -> None:
    """However often it has failed, the wait is what the policy says, give or take the jitter."""
    retry = outlast.Retry(
        attempts=10_000, delay=delay, backoff=backoff, max_delay=most, jitter=jitter
    )
    wait = retry.wait(failures, ConnectionError())
    try:
        middle = min(delay * backoff ** (failures - 1), most)
    except OverflowError:
        middle = most if delay else 0.0
    assert wait is not None
    slack = timedelta(microseconds=2)
    assert timedelta(seconds=middle * (1 - jitter)) - slack <= wait
    assert wait <= timedelta(seconds=middle * (1 + jitter)) + slack
    assert retry.wait(10_000, ConnectionError()) is None


def cancel_own_task() -> None:
    """What a library does that ends a wait of its own and forgets to say that it was itself."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@outlast.step(retry=outlast.Retry(attempts=3, delay=0, jitter=0))
async def cancels_itself(number: int) -> int:
    if outlast.step_info().attempt < 3:
        cancel_own_task()
        await asyncio.sleep(0)
    return number


@outlast.step(retry=outlast.Retry(attempts=2, delay=0, jitter=0))
async def always_cancels_itself(number: int) -> int:
    cancel_own_task()
    await asyncio.sleep(0)
    return number


@outlast.workflow
async def calls_them() -> list[object]:
    told: list[object] = [await cancels_itself(1), await outlast.map(cancels_itself, [2, 3])]
    try:
        await always_cancels_itself(4)
    except StepFailed as failed:
        told.append("cancelled itself" in str(failed))
    return told


@pytest.mark.proves("I10")
async def test_a_step_that_cancels_its_own_task_has_failed() -> None:
    """Nobody has cut it off, so it is an attempt like any other: were it taken for one that was, the
    run would wait for it for ever, and keep its lease."""
    async with app(calls_them) as testing:
        run = await testing.start(calls_them())
        assert await run.result(timeout=3600) == [1, [2, 3], True]
