"""Errors that name the place in the user's code, and mistakes that only a log can tell of."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Generator
from typing import Any

import pytest

import outlast
from outlast.errors import RunClosed, RunFailed, WorkflowMisuse
from outlast.testing import VirtualApp, app


async def failure_of(testing: VirtualApp, workflow: Any, *args: Any) -> str:
    """What the error of a run says."""
    run = await testing.start(workflow(*args))
    with pytest.raises(RunFailed) as caught:
        await run.result()
    return caught.value.error


def line_in(function: Any, number: int = 1) -> str:
    """A line of a function, as errors name it."""
    code = function.__code__
    return f"at test_bad_places.py:{code.co_firstlineno + number} in {code.co_name}"


# -- workflow code --------------------------------------------------------------------------------


async def connect() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


@outlast.workflow
async def connects() -> None:
    await connect()


@pytest.mark.proves("I14")
async def test_input_and_output_in_workflow_code_is_told_with_its_line() -> None:
    """Of the user's own code, not of the library that it calls."""
    async with app(connects) as testing:
        error = await failure_of(testing, connects)
    assert line_in(connect) in error
    assert "Put that into a step and await the step" in error


class Odd:
    """What another framework would await."""

    def __await__(self) -> Generator[Any, None, None]:
        yield "something of its own"


async def wait_in_another_way(foreign: asyncio.Future[None] | None) -> None:
    await (Odd() if foreign is None else foreign)


@pytest.mark.proves("I14")
@pytest.mark.parametrize("of_the_program", [True, False])
async def test_what_is_foreign_to_workflow_code_is_told_with_its_line(of_the_program: bool) -> None:
    """A future of the program's own loop, or an awaitable of no loop that asyncio knows."""
    foreign = asyncio.get_running_loop().create_future() if of_the_program else None

    @outlast.workflow
    async def waits_in_another_way() -> None:
        await wait_in_another_way(foreign)

    async with app(waits_in_another_way) as testing:
        error = await failure_of(testing, waits_in_another_way)
    place = line_in(wait_in_another_way) if of_the_program else line_in(Odd.__await__)
    assert place in error
    assert "Put that into a step and await the step" in error


async def test_a_sleep_outside_a_workflow_says_what_to_do() -> None:
    """In a step or anywhere else: where it works, and what to use instead."""

    @outlast.step
    async def naps() -> None:
        await outlast.sleep(1)

    @outlast.workflow
    async def has_a_nap() -> None:
        await naps()

    advice = r"outlast\.sleep\(\) works in a workflow only.*@outlast\.workflow.*asyncio\.sleep\(\)"
    with pytest.raises(WorkflowMisuse, match=advice):
        await outlast.sleep(1)
    async with app(has_a_nap) as testing:
        error = await failure_of(testing, has_a_nap)
    assert "step 'naps' failed" in error
    assert re.search(advice, error)


# -- names that nobody knows ----------------------------------------------------------------------


@outlast.workflow
async def waits() -> str:
    return await outlast.wait_for_signal("go", str)


@pytest.mark.proves("I16")
async def test_a_signal_that_nobody_asked_for_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """It is kept, because somebody might ask for it later; when the run has ended, nobody will."""
    caplog.set_level(logging.WARNING, "outlast")
    async with app(waits) as testing:
        run = await testing.start(waits(), id="it")
        await run.signal("goo", "typo")
        await run.signal("go", "on")
        assert await run.result() == "on"
    (told,) = [line for line in caplog.messages if "never waited for" in line]
    assert "run it of workflow 'waits'" in told
    assert "['goo']" in told
    assert "compare their names with those in wait_for_signal(…)" in told


@pytest.mark.proves("I16", "I18")
async def test_a_signal_to_a_run_that_has_ended_says_how_it_ended() -> None:
    """The error has the run and its status."""
    async with app(waits) as testing:
        run = await testing.start(waits(), id="it")
        await run.cancel("enough")
        await testing.clock.settle()
        with pytest.raises(RunClosed, match="run 'it' is cancelled") as caught:
            await run.signal("go", "on")
    assert (caught.value.run_id, caught.value.status) == ("it", "cancelled")


by_name = {"waits": waits}


@pytest.mark.proves("I21")
async def test_a_child_whose_code_is_not_here_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Another worker may have it, so it is no error; but nobody waits for ever without a word."""

    @outlast.workflow
    async def has_a_stranger() -> None:
        stranger = by_name["waits"]  # not named, so the app cannot know of it
        await asyncio.gather(stranger(), stranger())

    caplog.set_level(logging.WARNING, "outlast")
    async with app(has_a_stranger) as testing:
        run = await testing.start(has_a_stranger(), id="it")
        await testing.clock.settle()
        assert (await run.status()).status == "waiting"
    (told,) = [line for line in caplog.messages if "not registered" in line]
    assert "run it has a child of workflow 'waits'" in told
    assert "App(…, workflows=[…, waits])" in told
