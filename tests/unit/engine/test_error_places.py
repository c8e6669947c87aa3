"""Every error has a place: the class, the text, the lines of user code and the causes are recorded, shown and raised."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.engine.definitions.raised import kind_named
from outlast.errors import ChildFailed, MapFailed, RunFailed, ScopeFailed, StepFailed
from outlast.model.event import EventType, payload_of
from outlast.model.payloads import StepFailedEvent, WorkflowFailed
from outlast.testing import app
from outlast.testing.crash_sweep import HARSH

STORES = ("memory:", "sqlite")
PATIENCE = 30


class Declined(Exception):
    """An exception with an attribute, whose `__init__` takes something else than its `args`."""

    def __init__(self, code: int) -> None:
        super().__init__(f"declined with {code}")
        self.code = code
        self.handle = object()  # cannot be recorded


class Stolen(Declined):
    """A kind of it that no step declares."""


def look_up(data: dict[str, int]) -> int:
    return data["missing"]


def chained() -> None:
    try:
        look_up({})
    except KeyError as error:
        raise ValueError("no such order") from error


@outlast.step
async def breaks() -> None:
    chained()


@outlast.step
def breaks_in_a_thread() -> None:
    chained()


@outlast.step(process=True)
def breaks_in_a_process() -> None:
    chained()


@outlast.step(queue="far")
async def breaks_elsewhere() -> None:
    chained()


@outlast.step
async def breaks_at(item: int) -> int:
    if item == 2:
        chained()
    return item


STEPS = {
    "loop": breaks,
    "thread": breaks_in_a_thread,
    "process": breaks_in_a_process,
    "queue": breaks_elsewhere,
}


@outlast.workflow
async def code_breaks() -> None:
    chained()


@outlast.workflow
def plain_code_breaks() -> None:
    chained()


@outlast.workflow
async def step_breaks(kind: str) -> None:
    await STEPS[kind]()


@outlast.workflow
async def parent() -> None:
    await code_breaks()


@outlast.workflow
async def mapping() -> None:
    await outlast.map(breaks_at, [1, 2, 3])


async def scoped_body() -> None:
    chained()


@outlast.workflow
async def scoped() -> None:
    await outlast.scope(scoped_body)


WORKFLOWS = (code_breaks, plain_code_breaks, step_breaks, parent, mapping, scoped)


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else str(request.param)


async def failure(url: str, call: Any, **options: Any) -> tuple[str, WorkflowFailed]:
    """The traceback that a caller of `result()` sees, and the last event of the run."""
    steps = [breaks_elsewhere]
    async with outlast.App(url, workflows=WORKFLOWS, steps=steps, **options) as shop:
        run = await shop.start(call, id="o")
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=PATIENCE)
        last = payload_of((await shop.get("o").history())[-1])
    assert isinstance(last, WorkflowFailed)
    return "".join(traceback.format_exception(failed.value)), last


@pytest.mark.parametrize("workflow", [code_breaks, plain_code_breaks])
async def test_an_error_of_workflow_code_says_where(
    url: str, workflow: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller, the history and the log name the functions and lines that it came through."""
    caplog.set_level(logging.WARNING)
    shown, last = await failure(url, workflow())
    raised, cause = last.details
    assert (raised.type, raised.message) == ("ValueError", "no such order")
    assert (cause.type, cause.message) == ("KeyError", "'missing'")
    assert [frame.rpartition(" in ")[2] for frame in raised.frames] == [workflow.name, "chained"]
    assert raised.frames[-1].startswith("test_error_places.py:")
    for text in (shown, caplog.text):
        assert "in look_up" in text
        assert f"in {workflow.name}" in text


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("options", [{}, {"residency": HARSH}], ids=["calm", "evicted"])
async def test_an_error_of_a_step_says_where_and_why(
    url: str, kind: str, options: dict[str, Any]
) -> None:
    """Wherever the step ran, and if the run was evicted before it heard of it: where the workflow called it, where
    it was raised, and what it was raised from."""
    shown, last = await failure(url, step_breaks(kind), **options)
    failed, raised, cause = last.details
    assert [one.type for one in last.details] == ["StepFailed", "ValueError", "KeyError"]
    assert [one.link for one in last.details] == ["", "cause", "cause"]
    assert failed.frames[-1].endswith(" in step_breaks")
    assert raised.frames[-1].endswith(" in chained")
    assert cause.frames[-1].endswith(" in look_up")
    assert raised.message == "no such order"
    assert shown.index("in look_up") < shown.index("in step_breaks")


@pytest.mark.parametrize(
    ("workflow", "kinds"),
    [
        (parent, ["ChildFailed", "ValueError", "KeyError"]),
        (mapping, ["MapFailed", "ValueError", "KeyError"]),
        (scoped, ["ScopeFailed", "ValueError", "KeyError"]),
    ],
    ids=["child", "map", "scope"],
)
@pytest.mark.parametrize("options", [{}, {"residency": HARSH}], ids=["calm", "evicted"])
async def test_the_place_passes_children_maps_and_scopes(
    url: str, workflow: Any, kinds: list[str], options: dict[str, Any]
) -> None:
    """The error that the workflow gets has the place of the origin as its cause."""
    shown, last = await failure(url, workflow(), **options)
    assert [one.type for one in last.details] == kinds
    assert last.details[-1].frames[-1].endswith(" in look_up")
    assert "in look_up" in shown


async def test_what_the_workflow_catches_is_the_same_after_a_replay() -> None:
    """Class, text and cause of each kind of failure, live and read back from history."""
    seen: list[list[str]] = []

    @outlast.workflow
    async def catches() -> None:
        found = []
        calls: list[Callable[[], Any]] = [
            breaks,
            code_breaks,
            lambda: outlast.map(breaks_at, [2]),
            lambda: outlast.scope(scoped_body),
        ]
        for call in calls:
            try:
                await call()
            except (StepFailed, ChildFailed, MapFailed, ScopeFailed) as error:
                found.append(f"{type(error).__name__} {error} {error.__cause__}")
        seen.append(found)
        await outlast.sleep(60)

    async with app(catches, code_breaks, residency=HARSH) as shop:
        await (await shop.start(catches(), id="o")).result()
    live, *again = seen
    assert len(live) == 4
    assert again
    assert all(found == live for found in again)


# -- raises= ----------------------------------------------------------------------------------


@outlast.step(raises=Declined)
async def charge(kind: str) -> None:
    raise {"declared": Declined, "derived": Stolen}[kind](51)


@outlast.step(raises=(Declined,), process=True)
def charge_in_a_process(kind: str) -> None:
    raise Declined(51)


@outlast.step(raises=(Declined,), queue="far")
async def charge_elsewhere(kind: str) -> None:
    raise Declined(51)


CHARGES = {"loop": charge, "process": charge_in_a_process, "queue": charge_elsewhere}


@outlast.workflow
async def pays(where: str, kind: str) -> list[Any]:
    caught: list[Any] = []
    try:
        await CHARGES[where](kind)
    except Declined as error:
        caught = [type(error).__name__, str(error), error.code, type(error.__cause__).__name__]
    await outlast.sleep(0.01)
    return caught


@pytest.mark.parametrize("where", CHARGES)
@pytest.mark.parametrize("options", [{}, {"residency": HARSH}], ids=["calm", "evicted"])
async def test_a_declared_exception_is_caught_by_its_own_class(
    url: str, where: str, options: dict[str, Any]
) -> None:
    """With its text and its attributes, wherever the step ran, also after a replay."""
    async with outlast.App(url, workflows=[pays], steps=[charge_elsewhere], **options) as shop:
        run = await shop.start(pays(where, "declared"))
        assert await run.result(timeout=PATIENCE) == [
            "Declined", "declined with 51", 51, "StepFailed",
        ]  # fmt: skip


async def test_an_exception_derived_from_a_declared_one_is_that_one() -> None:
    """Only classes that the step declares are ever built."""
    async with app(pays) as shop:
        found = await (await shop.start(pays("loop", "derived"))).result()
    assert found[:2] == ["Declined", "declined with 51"]


async def test_a_run_that_a_declared_exception_ends_is_retried_from_its_step() -> None:
    """The step that failed is known, though the exception is not `StepFailed`."""

    @outlast.workflow
    async def careless() -> None:
        await charge("declared")

    async with app(careless) as shop:
        run = await shop.start(careless(), id="o")
        with pytest.raises(RunFailed, match="Declined: declined with 51"):
            await run.result()
        assert (await shop.get("o").status()).recover_to == "charge"


async def test_a_stored_name_is_compared_and_never_imported() -> None:
    """A class that the step does not declare is not looked up, whatever history names."""
    assert kind_named((Declined,), f"{Declined.__module__}.Declined") is Declined
    assert kind_named((Declined,), "os.system") is None
    async with app(pays) as shop:
        await (await shop.start(pays("loop", "declared"), id="o")).result()
        failed = [
            payload_of(event)
            for event in await shop.get("o").history()
            if event.type == EventType.STEP_FAILED
        ]
    [only] = failed
    assert isinstance(only, StepFailedEvent)
    assert only.kind == f"{Declined.__module__}.Declined"
    assert bytes(only.raised[0]) == b'{"args":["declined with 51"],"state":{"code":51}}'


@pytest.mark.parametrize("raises", ["Declined", [Declined], int, (KeyboardInterrupt,)])
def test_what_is_no_class_of_exceptions_is_refused(raises: Any) -> None:
    """The message says what to write."""
    with pytest.raises(outlast.errors.InvalidValue, match=r"use a class of exceptions or a tuple"):
        outlast.step(raises=raises)(charge.definition.function)
