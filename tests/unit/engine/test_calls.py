"""The call of a workflow: inert, typed, and a child run where it is awaited."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import outlast
from outlast import sync
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.errors import InvalidValue, NotFound, RunExists, RunFailed, WorkflowMisuse
from outlast.testing import app


@outlast.workflow
async def greet(name: str, times: int = 1) -> str:
    return " ".join(["hi", *[name] * times])


@outlast.workflow
async def greets_many(how: str) -> list[str]:
    if how == "gather":
        return list(await asyncio.gather(greet("a"), greet("a"), greet("b")))
    if how == "task":
        task = asyncio.create_task(greet("a"))
        return [await greet("b"), await task]
    if how == "group":
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(greet(name)) for name in "abc"]
        return [task.result() for task in tasks]
    async with asyncio.timeout(60):
        return [await asyncio.shield(greet("a"))]


@pytest.mark.proves("I21")
@pytest.mark.parametrize(
    ("how", "greeted"), [("gather", "aab"), ("task", "ba"), ("group", "abc"), ("shield", "a")]
)
async def test_an_awaited_call_is_a_child(how: str, greeted: str) -> None:
    """Two equal calls are two children, in whatever way asyncio awaits them."""
    async with app(greets_many) as testing:
        run = await testing.start(greets_many(how), id="p")
        assert await run.result() == [f"hi {name}" for name in greeted]
        children = [child async for child in testing.client.find(parent="p")]
        assert len(children) == len(greeted)


async def test_a_call_is_inert_and_compares_by_identity() -> None:
    """Nothing happens before it is used; it may be started as often as it is given."""
    call, other = greet("a"), greet("a")
    other.close()
    assert call != other
    assert isinstance(call, Coroutine)
    assert inspect.isawaitable(call)
    assert repr(call) == "<call greet('a')>"
    async with app(greet) as testing:
        first = await testing.start(call, id="one")
        assert (await testing.start(call, id="one")).id == first.id
        assert await (await testing.start(call, id="two")).result() == "hi a"


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing a required argument: 'name'"),
        (("a", 1, 2), {}, "too many positional arguments"),
        (("a",), {"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_arguments_are_bound_when_called(args: Any, kwargs: Any, said: str) -> None:
    """The error is raised where the call is written, with the signature."""
    with pytest.raises(TypeError, match=r"greet\(name: 'str', times: 'int' = 1\)") as wrong:
        greet(*args, **kwargs)
    assert said in str(wrong.value)


async def test_outside_of_a_workflow_it_cannot_be_awaited() -> None:
    """The error shows how to start it."""
    with pytest.raises(WorkflowMisuse, match=r"await app\.start\(greet\(…\)\)"):
        await greet("a")
    with pytest.raises(WorkflowMisuse, match=r"await app\.start\(greet\(…\)\)"):
        await asyncio.create_task(greet("a"))


async def test_a_call_is_awaited_once() -> None:
    """A second await is a second child: the code has to say so."""

    @outlast.workflow
    async def twice() -> str:
        call = greet("a")
        await call
        return await call

    async with app(twice) as testing:
        run = await testing.start(twice(), id="t")
        with pytest.raises(outlast.errors.RunFailed, match="awaited a second time"):
            await run.result()


async def test_a_call_is_awaited_in_the_run_that_made_it() -> None:
    """A call that was made elsewhere is refused at its first await: a replay would find it used, and halt the run."""
    made_before = greet("a")

    @outlast.workflow
    async def awaits_another() -> str:
        return await made_before

    async with app(awaits_another) as testing:
        run = await testing.start(awaits_another(), id="t")
        with pytest.raises(outlast.errors.RunFailed, match=r"Call greet\(…\) in the workflow"):
            await run.result()
        assert [child async for child in testing.client.find(parent="t")] == []


async def test_a_map_takes_a_step() -> None:
    """A workflow in its place is refused with what to write."""

    @outlast.workflow
    async def maps() -> Any:
        return await outlast.map(greet, ["a"])  # type: ignore[call-overload]  # the mistake

    async with app(maps) as testing:
        run = await testing.start(maps(), id="t")
        with pytest.raises(outlast.errors.RunFailed, match=r"asyncio\.gather"):
            await run.result()


def unused() -> None:
    """Calls a workflow, and forgets the call."""
    greet("a")


def test_a_call_that_is_never_used_warns_with_its_line() -> None:
    """As a coroutine that is never awaited does; one that was given to a start or a schedule does not."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unused()
        outlast.Schedule("s", greet("a"), cron="@daily")
        greet("b").close()
        gc.collect()
    [warning] = caught
    assert warning.category is RuntimeWarning
    assert "greet(…) was never used" in str(warning.message)
    assert warning.filename == __file__
    assert warning.lineno == inspect.getsourcelines(unused)[1] + 2


async def test_a_call_of_code_that_leaves_memory_does_not_warn() -> None:
    """The replay makes it again, and awaits it."""

    @outlast.workflow
    async def later() -> str:
        call = greet("a")
        await outlast.sleep(days=1)
        return await call

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with app(later) as testing:
            assert await (await testing.start(later())).result() == "hi a"
        gc.collect()


@outlast.step
async def counts(value: Any = None) -> int:
    COUNTED.append(value)
    return len(COUNTED)


@sync.step
def weighs(value: Any = None) -> int:
    COUNTED.append(value)
    return 1


COUNTED: list[Any] = []


@outlast.workflow
async def forgets_to_await() -> int:
    greet("a")
    return 5


@outlast.workflow
async def forgets_in_a_condition() -> int:
    return 5 if greet("a") else 6  # type: ignore[truthy-bool]  # the mistake


@outlast.workflow
async def forgets_before_a_step() -> int:
    greet("a", times=1)
    return await counts()


@outlast.workflow
async def forgets_and_catches() -> int:
    greet("a")
    with suppress(Exception):
        return await counts()
    return 5


@sync.workflow
def forgets_child() -> int:
    greet("a")
    return 5


@sync.workflow
def forgets_child_in_a_condition() -> int:
    if not greet("a"):  # type: ignore[truthy-bool]  # the mistake
        return 6
    weighs()
    return 5


FORGETFUL: list[outlast.Workflow[[], int]] = [
    forgets_to_await, forgets_in_a_condition, forgets_before_a_step, forgets_and_catches, forgets_child,
    forgets_child_in_a_condition,
]  # fmt: skip


@pytest.mark.parametrize("workflow", FORGETFUL, ids=lambda one: one.name)
async def test_a_call_that_workflow_code_drops_fails_the_run(
    workflow: outlast.Workflow[[], int],
) -> None:
    """Its child would never run. The error names the line, is raised before the next step, and cannot be lost."""
    COUNTED.clear()
    async with app(workflow, greet) as testing:
        run = await testing.start(workflow(), id="r")
        said = r"greet\(…\) at .*test_calls.py:\d+ is neither awaited"
        with pytest.raises(RunFailed, match=said) as failed:
            await run.result()
        assert "WorkflowMisuse" in str(failed.value.__cause__)
        assert [child async for child in testing.client.find(parent="r")] == []
    assert COUNTED == []


@outlast.workflow
async def returns_a_call() -> Any:
    return {"greeting": greet("a")}


@outlast.workflow
async def passes_a_call() -> int:
    return await counts([greet("a")])


@outlast.workflow
async def publishes_a_call() -> None:
    outlast.publish(greeting=greet("a"))


@sync.workflow
def returns_a_call_plainly() -> str:
    return greet("a")  # type: ignore[return-value]  # the mistake


@sync.workflow
def passes_a_call_plainly() -> Any:
    return weighs(greet("a"))


PASSING: list[outlast.Workflow[[], Any]] = [
    returns_a_call, passes_a_call, publishes_a_call, returns_a_call_plainly, passes_a_call_plainly,
]  # fmt: skip


@pytest.mark.parametrize("workflow", PASSING, ids=lambda one: one.name)
async def test_a_call_is_no_value(workflow: outlast.Workflow[[], Any]) -> None:
    """As a result, an argument or a published value it is refused, with what to write in either kind of workflow."""
    async with app(workflow, greet) as testing:
        with pytest.raises(
            RunFailed, match=r"type Call has no JSON form. Await it.*outlast\.sync\.child\("
        ):
            await (await testing.start(workflow())).result()


@outlast.workflow
async def keeps_some(how: str) -> str:
    """Code that makes calls and does not need all of them."""
    spare = greet("spare")
    if how == "return early":
        return "early"
    calls: list[outlast.Call[str]] = []
    calls.extend(map(greet, "abc"))  # a call in C, as a statement
    calls.append(greet("d"))
    last = spare
    for name in "ef":
        last = greet(name)  # the one before is dropped by the assignment
    if how == "first":
        return await calls[0]
    if how == "cancelled":
        task = asyncio.create_task(spare)
        task.cancel()
        return await last
    await asyncio.gather(spare, *calls)
    async with asyncio.timeout(60):
        return await last


@pytest.mark.filterwarnings("ignore:the call greet:RuntimeWarning")
@pytest.mark.parametrize(
    ("how", "result"),
    [("return early", "early"), ("first", "hi a"), ("cancelled", "hi f"), ("all", "hi f")],
)
async def test_a_call_that_was_kept_is_no_error(how: str, result: str) -> None:
    """There may be a reason not to use it: that is a warning, as for a coroutine of Python."""
    async with app(keeps_some, greet) as testing:
        run = await testing.start(keeps_some(how), id="r")
        assert await run.result() == result


async def test_a_call_that_a_program_drops_is_a_warning() -> None:
    """Outside of workflow code nothing can be raised: the call is not made by a run."""
    with pytest.warns(RuntimeWarning, match=r"greet\(…\) was never used"):
        unused()


@sync.workflow
def plain() -> str:
    return sync.child(greet("a", times=2))


async def test_a_plain_workflow_has_child() -> None:
    """It blocks until the child has its result."""
    async with app(plain) as testing:
        assert await (await testing.start(plain())).result() == "hi a a"


@pytest.mark.parametrize("wrong", [greet, lambda: None, 3, None])
async def test_what_is_no_call_is_refused_with_the_form_to_write(wrong: Any) -> None:
    """Also the workflow itself: its arguments belong into the call."""
    async with app(greet) as testing:
        with pytest.raises(WorkflowMisuse, match=r"start\((greet|order)\(…\)\)"):
            await testing.start(wrong)
        with pytest.raises(WorkflowMisuse, match=r"start\(greet\(…\)\)"):
            await testing.start(greet("a"), ["b"])  # type: ignore[call-overload]


async def test_a_run_goes_on_as_the_same_workflow() -> None:
    """Another one is a child, not a continuation."""

    @outlast.workflow
    async def strays() -> None:
        outlast.continue_as_new(greet("a"))

    async with app(strays) as testing:
        with pytest.raises(outlast.errors.RunFailed, match=r"Call strays\(…\)"):
            await (await testing.start(strays())).result()


async def test_a_start_by_name() -> None:
    """An app that has the code checks the arguments, and names what it has."""
    async with app(greet) as testing:
        assert await (await testing.start("greet", ["a"], {"times": 2})).result() == "hi a a"
        assert await (await testing.start("greet", kwargs={"name": "b"})).result() == "hi b"
        with pytest.raises(InvalidValue, match=r"does not fit greet\(name.*missing"):
            await testing.start("greet")
        with pytest.raises(InvalidValue, match=r"does not fit greet.*too many"):
            await testing.start("greet", ["a", 1, 2])
        with pytest.raises(InvalidValue, match=r"does not fit greet.*'colour'"):
            await testing.start("greet", ["a"], {"colour": 1})
        with pytest.raises(InvalidValue, match=r"does not fit greet.*`int`"):
            await testing.start("greet", ["a", "two"])
        with pytest.raises(InvalidValue, match=r"start\('greet', \['a'\]\)"):
            await testing.start("greet", "a")
        with pytest.raises(NotFound, match="did you mean 'greet'"):
            await testing.start("great", ["a"])


async def test_a_start_by_name_without_the_code() -> None:
    """The worker that has the code binds the arguments; the same start is the same run, in either form."""
    async with app(greet) as testing:
        client = Client(testing.store, codec=JsonCodec())
        run = await client.start("greet", ["a"], {"times": 2}, id="r")
        assert await run.result() == "hi a a"
        assert (await client.start("greet", ["a", 2], id="r")).id == "r"
        assert (await client.start("greet", [], {"name": "a", "times": 2}, id="r")).id == "r"
        assert (await testing.start(greet("a", 2), id="r")).id == "r"
        with pytest.raises(RunExists):
            await client.start("greet", ["b"], id="r")
        with pytest.raises(RunExists):
            await testing.start(greet("a"), id="r")


async def test_calls_by_the_hundred() -> None:
    """A dict gives ids; a generator is read as it goes."""
    async with app(greet) as testing:
        runs = await testing.start_many(greet(name) for name in "abc")
        assert [await run.result() for run in runs] == ["hi a", "hi b", "hi c"]
        again = [await testing.start_many({"x": greet("x"), "y": greet("y")}) for _ in range(2)]
        assert [[run.id for run in one] for one in again] == [["x", "y"]] * 2


async def test_a_timedelta_is_as_good_as_seconds() -> None:
    """Wherever seconds are given."""

    @outlast.step(timeout=timedelta(seconds=5), retry=outlast.Retry(delay=timedelta(seconds=2)))
    async def waits() -> int:
        return 1

    @outlast.workflow
    async def naps() -> int:
        start = outlast.now()
        await outlast.sleep(timedelta(minutes=1))
        with pytest.raises(outlast.errors.SignalTimeout):
            await outlast.wait_for_signal("never", timeout=timedelta(minutes=1))
        await waits()
        return int((outlast.now() - start).total_seconds())

    assert (waits.definition.timeout, waits.definition.retry.delay) == (5, 2)
    assert outlast.Retry(max_delay=timedelta(minutes=1)) == outlast.Retry(max_delay=60)
    async with app(naps) as testing:
        assert await (await testing.start(naps())).result() == 120
        run = await testing.client.debounce(greet("a"), key="k", quiet=timedelta(seconds=1))
        assert run.id == "greet.k.1"
    lasting = outlast.App("memory:", lease=timedelta(seconds=7), drain=timedelta(seconds=3))
    assert lasting.drain == 3
