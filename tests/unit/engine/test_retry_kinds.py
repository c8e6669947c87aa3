"""Which errors of a step are retried: not bugs, unless the policy names them; `RetryAfter` says its own delay."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidValue, RunFailed, StepFailed, WorkflowMisuse
from outlast.model.event import payload_of
from outlast.model.payloads import StepFailedEvent
from outlast.testing import app

TWICE = outlast.Retry(attempts=2, delay=0, jitter=0)


class NotYet(LookupError):
    """A class of the user that is derived from a programming error: raised on purpose."""


def raise_error(kind: str) -> None:
    """Raise an error of that name; a bug by running the code that has it."""
    match kind:
        case "NameError":
            eval("undefined")
        case "AttributeError":
            eval("None.nothing")
        case "TypeError":
            eval("len(1)")
        case "KeyError":
            eval("{}['missing']")
        case "IndexError":
            eval("[][0]")
        case "AssertionError":
            assert not kind, kind
        case "ImportError":
            exec("from outlast import nothing")
        case "WorkflowMisuse":
            raise WorkflowMisuse("wrong")
        case "NotYet":
            raise NotYet("it comes later")
        case _:
            raise ConnectionError("cut off")


@outlast.step(retry=TWICE)
async def on_the_loop(kind: str) -> None:
    raise_error(kind)


@outlast.step(retry=TWICE)
def in_a_thread(kind: str) -> None:
    raise_error(kind)


@outlast.step(retry=TWICE, process=True)
def in_a_process(kind: str) -> None:
    raise_error(kind)


@outlast.step(retry=TWICE, queue="far")
async def in_a_queue(kind: str) -> None:
    raise_error(kind)


STEPS: dict[str, Callable[[str], Any]] = {
    "loop": on_the_loop,
    "thread": in_a_thread,
    "process": in_a_process,
    "queue": in_a_queue,
}


@outlast.workflow
async def calls(where: str, kind: str) -> int:
    """How many attempts the step had."""
    try:
        await STEPS[where](kind)
    except StepFailed as failed:
        return failed.attempts
    return 0


BUGS = [
    "NameError",
    "AttributeError",
    "TypeError",
    "KeyError",
    "IndexError",
    "AssertionError",
    "ImportError",
]


@pytest.mark.proves("I10")
@pytest.mark.parametrize("kind", [*BUGS, "WorkflowMisuse"])
@pytest.mark.parametrize("where", ["loop", "thread", "process", "queue"])
async def test_a_bug_in_a_step_is_not_retried(where: str, kind: str) -> None:
    """The same code would raise it again, wherever the step is executed."""
    async with app(calls, steps=[in_a_queue]) as testing:
        assert await (await testing.start(calls(where, kind))).result() == 1


@pytest.mark.proves("I10")
@pytest.mark.parametrize("kind", ["ConnectionError", "NotYet"])
@pytest.mark.parametrize("where", ["loop", "thread", "process", "queue"])
async def test_other_errors_are_retried(where: str, kind: str) -> None:
    """Also those of a class that the user derived from a programming error: it is raised on purpose."""
    async with app(calls, steps=[in_a_queue]) as testing:
        assert await (await testing.start(calls(where, kind))).result() == 2


@pytest.mark.parametrize(
    ("retry", "error", "is_retried"),
    [
        (outlast.Retry(), KeyError("x"), False),
        (outlast.Retry(), ConnectionError("x"), True),
        (outlast.Retry(on=(Exception,)), KeyError("x"), True),
        (outlast.Retry(on=(LookupError,)), KeyError("x"), True),
        (outlast.Retry(on=(LookupError,)), ConnectionError("x"), False),
        (outlast.Retry(on=()), ConnectionError("x"), False),
        (outlast.Retry(on=(OSError,), give_up_on=(ConnectionError,)), ConnectionError("x"), False),
        (outlast.Retry(on=(OSError,), give_up_on=(ConnectionError,)), TimeoutError("x"), True),
        (outlast.Retry(on=(OSError,)), outlast.RetryAfter(1), True),
        (outlast.Retry(give_up_on=(outlast.RetryAfter,)), outlast.RetryAfter(1), False),
        (outlast.Retry(attempts=1), outlast.RetryAfter(1), False),
    ],
)
def test_a_policy_names_what_is_retried(
    retry: outlast.Retry, error: Exception, is_retried: bool
) -> None:
    """Classes that `on` names are retried, bugs too; `give_up_on` wins; `attempts` limits all."""
    assert (retry.wait(1, error) is not None) == is_retried


def slow_down() -> None:
    if outlast.step_info().attempt == 1:
        raise outlast.RetryAfter(timedelta(minutes=7)) from ConnectionError("429")


@outlast.step(retry=outlast.Retry(attempts=2, delay=1, max_delay=5))
async def is_told_on_the_loop() -> str:
    slow_down()
    return "done"


@outlast.step(retry=outlast.Retry(attempts=2, delay=1, max_delay=5), process=True)
def is_told_in_a_process() -> str:
    slow_down()
    return "done"


@outlast.step(retry=outlast.Retry(attempts=2, delay=1, max_delay=5), queue="far")
async def is_told_in_a_queue() -> str:
    slow_down()
    return "done"


@outlast.step
async def has_no_policy() -> None:
    raise outlast.RetryAfter(30)


TOLD: dict[str, Callable[[], Any]] = {
    "loop": is_told_on_the_loop,
    "process": is_told_in_a_process,
    "queue": is_told_in_a_queue,
    "no policy": has_no_policy,
}


@outlast.workflow
async def waits(where: str) -> float:
    before = outlast.now()
    assert await TOLD[where]() == "done"
    return (outlast.now() - before).total_seconds()


@pytest.mark.proves("I10")
@pytest.mark.parametrize("where", ["loop", "process", "queue"])
async def test_a_step_says_when_it_may_be_tried_again(where: str) -> None:
    """The wait is what `RetryAfter` says and not what the policy would, and it is recorded with the attempt."""
    async with app(waits, steps=[is_told_in_a_queue]) as testing:
        run = await testing.start(waits(where))
        assert 420 <= await run.result() < 430
        failed = [payload_of(event) for event in await run.history() if event.type == "step.failed"]
        assert [
            (one.error_type, one.will_retry) for one in failed if isinstance(one, StepFailedEvent)
        ] == [("RetryAfter", True)]


@outlast.step(retry=outlast.Retry(attempts=2, delay=1, max_delay=5))
async def item_is_told(item: int) -> int:
    slow_down()
    return item


@outlast.workflow
async def maps_and_waits() -> float:
    before = outlast.now()
    await outlast.map(item_is_told, [1, 2])
    return (outlast.now() - before).total_seconds()


async def test_an_item_of_a_map_says_when_it_may_be_tried_again() -> None:
    """The same in a map."""
    async with app(maps_and_waits) as testing:
        assert 420 <= await (await testing.start(maps_and_waits())).result() < 430


async def test_without_a_policy_it_is_the_last_attempt_and_says_what_to_declare() -> None:
    """A step without `retry` has one attempt."""
    async with app(waits) as testing:
        with pytest.raises(RunFailed, match=r"30 s \(step\(retry=outlast.Retry\(attempts=…\)\)"):
            await (await testing.start(waits("no policy"))).result()


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "soon", None])
def test_an_impossible_delay_is_refused(seconds: Any) -> None:
    """Where it is raised, with what to use."""
    with pytest.raises(InvalidValue, match="use a number of seconds"):
        outlast.RetryAfter(seconds)
