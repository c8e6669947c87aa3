"""Races: signals against their timeouts, and whatever else may come first."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import outlast
from outlast import sync
from outlast.errors import RunClosed, SignalTimeout
from tests.corpus.case import Case
from tests.corpus.stage import Stage, takes

HOUR = 3600


@outlast.step
async def work(name: str, seconds: float) -> str:
    await takes(seconds)
    return name


async def says(stage: Stage, name: str, text: str) -> None:
    """Send a signal that may be too late for its run: that is what a race is."""
    with suppress(RunClosed):
        await stage.signal(name, text)


@outlast.workflow
async def waits_an_hour_at_most() -> str:
    try:
        return await outlast.wait_for_signal("answer", str, timeout=HOUR)
    except SignalTimeout:
        return "nothing"


@outlast.workflow
def waits_an_hour_at_most_sync() -> str:
    try:
        return sync.wait_for_signal("answer", str, timeout=HOUR)
    except SignalTimeout:
        return "nothing"


IN_TIME = """
    workflow.started
    signal.waiting signal:answer
    signal.received signal:answer
    workflow.completed
"""
TOO_LATE = """
    workflow.started
    signal.waiting signal:answer
    signal.timeout signal:answer
    workflow.completed
"""


async def answers_at_the_last_moment(stage: Stage) -> None:
    await takes(HOUR - 1)
    await says(stage, "answer", "just in time")


async def never_answers(stage: Stage) -> None:
    """Nothing comes."""


@outlast.workflow
async def three_signals_and_three_timeouts() -> list[str]:
    async def ask(name: str, hours: float) -> str:
        try:
            return await outlast.wait_for_signal(name, str, timeout=hours * HOUR)
        except SignalTimeout:
            return f"no {name}"

    return list(await asyncio.gather(ask("early", 4), ask("late", 1), ask("never", 3)))


async def answers_early_and_late(stage: Stage) -> None:
    await stage.until_recorded("signal.timeout", "1/signal:late")
    await says(stage, "late", "late")
    await says(stage, "early", "early")


@outlast.workflow
async def whichever_is_first() -> str:
    """A signal, a step and a timer: the losers are given up."""
    rivals = {
        "signal": asyncio.create_task(outlast.wait_for_signal("answer", str)),
        "step": asyncio.create_task(work("slow", 50)),
        "timer": asyncio.create_task(outlast.sleep(90)),
    }
    await asyncio.wait(rivals.values(), return_when=asyncio.FIRST_COMPLETED)
    winners = [name for name, task in rivals.items() if task.done()]
    for task in rivals.values():
        task.cancel()
    await asyncio.gather(*rivals.values(), return_exceptions=True)
    await outlast.sleep(hours=1)
    return " ".join(winners)


WHICHEVER_IS_FIRST = """
    workflow.started
    signal.waiting 0/signal:answer
    step.started 1/work
    timer.started 2/timer
    {first}
    {lost}
    timer.started timer
    timer.fired timer
    workflow.completed
"""


async def answers_before_the_step(stage: Stage) -> None:
    await stage.until_recorded("timer.started", "2/timer")
    await takes(20)
    await says(stage, "answer", "here")


@outlast.workflow
async def a_timeout_around_signals() -> list[str]:
    """The limit is for all of them together; what came in time is kept."""
    heard: list[str] = []
    try:
        async with asyncio.timeout(2 * HOUR):
            while True:
                heard.append(await outlast.wait_for_signal("line", str))
    except TimeoutError:
        return heard


async def says_two_lines(stage: Stage) -> None:
    await says(stage, "line", "one")
    await takes(HOUR)
    await says(stage, "line", "two")


CASES = [
    Case(
        waits_an_hour_at_most,
        IN_TIME,
        "just in time",
        name="a_signal_at_the_last_moment",
        world=answers_at_the_last_moment,
        # A process that dies then is missed for longer than what is left of the hour, but a signal
        # that is there wins all the same.
    ),
    Case(waits_an_hour_at_most, TOO_LATE, "nothing", world=never_answers),
    Case(waits_an_hour_at_most_sync, TOO_LATE, "nothing", world=never_answers),
    Case(
        three_signals_and_three_timeouts,
        """
        workflow.started
        signal.waiting 0/signal:early
        signal.waiting 1/signal:late
        signal.waiting 2/signal:never
        signal.timeout 1/signal:late
        signal.received 0/signal:early
        signal.timeout 2/signal:never
        workflow.completed
        """,
        ["early", "no late", "no never"],
        world=answers_early_and_late,
        parallel=True,
    ),
    Case(
        whichever_is_first,
        WHICHEVER_IS_FIRST.format(
            first="signal.received 0/signal:answer",
            lost="operation.abandoned 1/work\n    operation.abandoned 2/timer",
        ),
        "signal",
        name="the_signal_is_first",
        bodies=1,
        world=answers_before_the_step,
    ),
    Case(
        whichever_is_first,
        WHICHEVER_IS_FIRST.format(
            first="step.completed 1/work",
            lost="operation.abandoned 0/signal:answer\n    operation.abandoned 2/timer",
        ),
        "step",
        name="the_step_is_first",
        world=never_answers,
        # A step that is cut off and begun again takes longer than the timer.
        after_crash=("timer",),
    ),
    Case(
        a_timeout_around_signals,
        """
        workflow.started
        timer.started timer
        signal.waiting signal:line
        signal.received signal:line
        signal.waiting signal:line#2
        signal.received signal:line#2
        signal.waiting signal:line#3
        timer.fired timer
        operation.abandoned signal:line#3
        workflow.completed
        """,
        ["one", "two"],
        world=says_two_lines,
    ),
]
