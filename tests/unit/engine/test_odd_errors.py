"""Errors of the user's that are hard to record: each ends its run, and none keeps it for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import outlast
from outlast.engine.replay.error_text import MAX_AROUND, MAX_CHARACTERS, text_of
from outlast.errors import MapFailed, RunFailed, UpdateFailed
from outlast.testing import app

PATIENCE = 20


class Mute(Exception):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise AttributeError("it was never initialised")


def _mute() -> Exception:
    return Mute()


def _broken_text() -> Exception:
    return ValueError("cannot read caf\udce9.txt")  # as os.listdir() names it


def _long() -> Exception:
    return ValueError("x" * 20_000_000)


def _group() -> Exception:
    return ExceptionGroup("two", [ValueError("first"), KeyError("second")])


ODD: dict[str, tuple[Callable[[], Exception], str]] = {
    "mute": (_mute, "Mute: (its text cannot be had: __str__ raised AttributeError)"),
    "broken text": (_broken_text, "caf\\udce9.txt"),
    "long": (_long, "(20,000,000 characters)"),
    "group": (_group, "ValueError: first; KeyError: 'second'"),
}


def error_of(kind: str) -> Exception:
    """A new error of that kind."""
    return ODD[kind][0]()


@outlast.step
async def raises(kind: str) -> None:
    raise error_of(kind)


@outlast.step
def raises_in_a_thread(kind: str) -> None:
    raise error_of(kind)


@outlast.workflow
async def steps_raise(kind: str, *, threads: bool) -> None:
    await (raises_in_a_thread if threads else raises)(kind)


@outlast.workflow
async def code_raises(kind: str) -> None:
    raise error_of(kind)


@outlast.workflow
async def scopes_raise(kind: str) -> None:
    async def body() -> None:
        raise error_of(kind)

    await outlast.scope(body)


@outlast.workflow
async def maps_raise(kind: str) -> str:
    try:
        await outlast.map(raises, [kind])
    except MapFailed as failure:
        return failure.error
    return ""


@outlast.workflow
async def updates_raise() -> None:
    @outlast.on_update
    async def ask(kind: str) -> None:
        raise error_of(kind)

    await outlast.wait_for_signal("end")


@pytest.mark.parametrize("kind", ODD)
async def test_every_error_can_be_recorded(kind: str) -> None:
    """Whatever a step, a workflow, a scope, a map or a handler raises is told, and ends there."""
    says = ODD[kind][1]
    workflows = (steps_raise, code_raises, scopes_raise, maps_raise, updates_raise)
    async with app(*workflows) as testing:
        for threads in (False, True):
            run = await testing.start(steps_raise(kind, threads=threads))
            with pytest.raises(RunFailed) as failed:
                await run.result(timeout=PATIENCE)
            assert says in failed.value.error
        for workflow in (code_raises, scopes_raise):
            run = await testing.start(workflow(kind))
            with pytest.raises(RunFailed) as failed:
                await run.result(timeout=PATIENCE)
            assert says in failed.value.error
            assert len(failed.value.error) < MAX_CHARACTERS + MAX_AROUND
        mapping = await testing.start(maps_raise(kind))
        assert says in await mapping.result(timeout=PATIENCE)
        asked = await testing.start(updates_raise())
        with pytest.raises(UpdateFailed) as answer:
            await asked.update("ask", kind, timeout=PATIENCE)
        assert says in answer.value.error
        await asked.signal("end")
        await asked.result(timeout=PATIENCE)


def test_an_error_that_says_nothing_is_told_by_its_name() -> None:
    """`raise TimeoutError` has no text, and an empty line tells nobody anything."""
    assert text_of(TimeoutError()) == "TimeoutError"


@outlast.step
def finds_nothing(numbers: list[int]) -> int:
    return next(number for number in numbers if number > 10)


@outlast.workflow
async def finds(numbers: list[int]) -> int:
    return await finds_nothing(numbers)


async def test_a_plain_step_may_raise_stop_iteration() -> None:
    """``next(…)`` without a default is a common slip: no future takes what it raises."""
    async with app(finds) as testing:
        run = await testing.start(finds([1, 2]))
        with pytest.raises(RunFailed, match="finds_nothing raised StopIteration"):
            await run.result(timeout=PATIENCE)


@outlast.step
async def closes_itself(_: int = 0) -> None:
    raise GeneratorExit


@outlast.step
def closes_in_a_thread() -> None:
    raise GeneratorExit


@outlast.step(timeout=PATIENCE)
async def closes_within_a_time() -> None:
    raise GeneratorExit


@outlast.step(queue="closing")
async def closes_elsewhere() -> None:
    raise GeneratorExit


@outlast.workflow
async def closes(kind: str) -> None:
    match kind:
        case "here":
            await closes_itself()
        case "thread":
            await closes_in_a_thread()
        case "limited":
            await closes_within_a_time()
        case "queued":
            await closes_elsewhere()
        case _:
            await outlast.map(closes_itself, [1])


@pytest.mark.parametrize("kind", ["here", "thread", "limited", "queued", "map"])
async def test_a_step_that_raises_what_closes_coroutines_has_failed(kind: str) -> None:
    """Nothing has closed it: it fails once, at once, and as what it raised, wherever it runs."""
    steps = [closes_elsewhere]
    async with outlast.App("memory:", workflows=[closes], steps=steps) as embedded:
        run = await embedded.start(closes(kind))
        with pytest.raises(RunFailed, match="GeneratorExit"):
            await run.result(timeout=PATIENCE)
        tried = [e for e in await embedded.get(run.id).history() if e.type == "step.started"]
        assert len(tried) <= 1
