"""Bad input: an error that names the place and says what to do instead."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Struct

import outlast
from outlast import sync
from outlast.errors import (
    Closed,
    InvalidId,
    InvalidValue,
    NotFound,
    NotSerializable,
    RunClosed,
    RunExists,
    RunFailed,
    WorkflowMisuse,
)
from outlast.model import Status
from outlast.testing import VirtualApp, app


class Point(Struct):
    x: int
    y: int


@outlast.step
async def double(number: int) -> int:
    return 2 * number


@outlast.workflow
async def doubles(number: int) -> int:
    return await double(number)


async def failure_of(app: VirtualApp, workflow: Any, *args: Any) -> str:
    """What the error of a run says."""
    run = await app.start(workflow(*args))
    with pytest.raises(RunFailed) as caught:
        await run.result()
    return caught.value.error


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.proves("I28")
async def test_an_argument_of_the_wrong_type_names_the_argument() -> None:
    """A start with an argument that does not fit is refused, and nothing is written."""
    async with app(doubles) as testing:
        with pytest.raises(NotSerializable, match="argument 'number' of doubles: expected `int`"):
            await testing.start(doubles("two"), id="it")  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            await testing.get("it").status()
        with pytest.raises(TypeError, match=r"doubles\(number: .*missing a required argument"):
            await testing.start(doubles(), id="it")  # type: ignore[call-arg]


@pytest.mark.proves("I28")
async def test_an_argument_that_cannot_be_stored_says_how_to_annotate_it() -> None:
    """A value without an annotation that would come back as something else is refused."""

    @outlast.step
    async def draw(point) -> None:  # type: ignore[no-untyped-def]
        ...

    @outlast.workflow
    async def draws() -> None:
        await draw(Point(1, 2))

    async with app(draws) as testing:
        error = await failure_of(testing, draws)
    assert "argument 'point'" in error
    assert "Annotate it as Point" in error


@pytest.mark.proves("I28")
async def test_a_result_of_the_wrong_type_names_the_step() -> None:
    """What a step returns has to fit its annotation; it is not tried again for that."""
    tries = []

    @outlast.step(retry=outlast.Retry(attempts=5, delay=0))
    async def count() -> int:
        tries.append(1)
        return "three"  # type: ignore[return-value]

    @outlast.workflow
    async def counts() -> int:
        return await count()

    async with app(counts) as testing:
        error = await failure_of(testing, counts)
    assert "result of" in error
    assert "count: expected `int`, got `str`" in error
    assert len(tries) == 1


@pytest.mark.proves("I28")
async def test_a_result_of_a_workflow_that_cannot_be_stored() -> None:
    """The run fails, and its error names the workflow."""

    @outlast.workflow
    async def returns_a_set() -> Any:
        return {1, 2}

    async with app(returns_a_set) as testing:
        assert "result of" in await failure_of(testing, returns_a_set)


async def test_a_step_that_returns_a_generator() -> None:
    """A generator cannot be recorded, whether the step is one or returns one."""
    with pytest.raises(WorkflowMisuse, match="is a generator: its values could not be recorded"):

        @outlast.step
        def numbers() -> Iterator[int]:
            yield 1

    with pytest.raises(WorkflowMisuse, match="Return a list"):

        @outlast.step
        async def more_numbers() -> AsyncIterator[int]:
            yield 1

    @outlast.step
    async def sneaky() -> Any:
        return (number for number in range(3))

    @outlast.workflow
    async def wants_numbers() -> Any:
        return await sneaky()

    async with app(wants_numbers) as testing:
        error = await failure_of(testing, wants_numbers)
    assert "step 'sneaky' returned a generator, which cannot be recorded: return a list" in error


@pytest.mark.proves("I28")
async def test_an_item_of_a_map_that_does_not_fit() -> None:
    """The map fails at that item and says which argument it was for."""

    @outlast.workflow
    async def maps() -> list[int]:
        return await outlast.map(double, [1, "two", 3])  # type: ignore[arg-type]

    async with app(maps) as testing:
        error = await failure_of(testing, maps)
    assert "'map:double' failed at item 1" in error
    assert "argument 'number' of double: expected `int`" in error


@pytest.mark.proves("I28")
async def test_a_new_life_with_wrong_arguments_fails() -> None:
    """`continue_as_new` is checked like a start; the run does not hang between two lives."""

    @outlast.workflow
    async def goes_on(number: int) -> int:
        await outlast.sleep(hours=1)
        outlast.continue_as_new(goes_on("one more"))  # type: ignore[arg-type]

    async with app(goes_on) as testing:
        assert "argument 'number'" in await failure_of(testing, goes_on, 1)


async def test_what_is_published_has_to_be_storable() -> None:
    """The error names the value that cannot be shown."""

    @outlast.workflow
    async def shows() -> None:
        outlast.publish(fine=1, odd=object())

    async with app(shows) as testing:
        assert "published 'odd'" in await failure_of(testing, shows)


# -- workflow code that reaches into the world ----------------------------------------------------


async def reads_a_socket() -> None:
    await asyncio.open_connection("127.0.0.1", 1)


async def uses_a_thread() -> None:
    await asyncio.to_thread(print)


async def starts_a_process() -> None:
    await asyncio.create_subprocess_exec("true")


async def asks_for_an_address() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 1)


async def reads_by_hand() -> None:
    with socket.socket() as plug:
        await asyncio.get_running_loop().sock_recv(plug, 1)


@pytest.mark.proves("I14")
@pytest.mark.parametrize(
    "body",
    [reads_a_socket, uses_a_thread, starts_a_process, asks_for_an_address, reads_by_hand],
)
async def test_workflow_code_that_reaches_into_the_world(body: Any) -> None:
    """The run fails with the advice to put that into a step."""

    @outlast.workflow(name="reaches_out")
    async def reaches_out() -> None:
        await body()

    async with app(reaches_out) as testing:
        error = await failure_of(testing, reaches_out)
    assert "workflow code used the event loop" in error
    assert "Put that into a step" in error


@pytest.mark.proves("I14")
async def test_a_foreign_future_in_workflow_code() -> None:
    """What belongs to the program's own loop cannot be awaited; the error says what to do."""
    foreign: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @outlast.workflow
    async def awaits_it() -> int:
        return await foreign

    async with app(awaits_it) as testing:
        error = await failure_of(testing, awaits_it)
    assert "attached to a different loop" in error
    assert "step" in error


@pytest.mark.proves("I14")
async def test_code_that_never_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that polls blocks everything else: a start is refused, a run that gets there later
    is parked, and both say what to await instead."""
    monkeypatch.setattr("outlast.engine.replay.event_loop.MAX_CALLBACKS", 10_000)

    @outlast.workflow
    async def polls(pause: bool) -> None:
        if pause:
            await outlast.sleep(hours=1)
        while True:  # noqa: ASYNC110 - this is the mistake that is tested
            await asyncio.sleep(0)

    async with app(polls) as testing:
        with pytest.raises(WorkflowMisuse, match=r"waits for nothing.*await a step, a signal"):
            await testing.start(polls(False), id="at-once")
        with pytest.raises(NotFound):
            await testing.get("at-once").status()
        run = await testing.start(polls(True), id="later")
        await testing.clock.sleep(7200)
        assert (await run.status()).status is Status.HALTED
        assert "await a step" in str((await testing.get("later").status()).error)
        await testing.get("later").terminate()


async def test_outlast_calls_outside_a_workflow() -> None:
    """Each says where it works."""
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    calls: list[Any] = [
        lambda: outlast.sleep(1),
        lambda: outlast.sleep_until(moment),
        lambda: outlast.wait_for_signal("go"),
        outlast.halt,
        lambda: outlast.child(doubles(1)),
        lambda: outlast.map(double, [1]),
        lambda: outlast.branch("way", True),
        lambda: outlast.patched("it"),
        lambda: outlast.publish(done=1),
        lambda: outlast.set_attributes(customer="ann"),
        outlast.now,
        outlast.random,
        outlast.uuid4,
        lambda: outlast.continue_as_new(doubles(1)),
    ]
    for call in calls:
        with pytest.raises(WorkflowMisuse, match=r"outlast\.\w+\(\) works in a workflow only"):
            call()
    for call in (outlast.step_info, outlast.heartbeat, outlast.last_heartbeat):
        with pytest.raises(WorkflowMisuse, match="works in a step that a workflow has called"):
            call()


async def test_a_plain_call_in_an_async_workflow_says_so() -> None:
    """`outlast.sync` is for plain workflows: in an async one it would block for ever."""

    @outlast.workflow
    async def mixes() -> None:
        sync.sleep(1)

    async with app(mixes) as testing:
        assert "use `await outlast.sleep(…)`" in await failure_of(testing, mixes)


async def test_a_step_is_just_a_function_elsewhere() -> None:
    """Called outside a workflow, a step does what its function does."""
    assert await double(21) == 42


# -- runs that are not what the caller thinks -----------------------------------------------------


@outlast.workflow
async def waits() -> str:
    return await outlast.wait_for_signal("go", str)


@pytest.mark.proves("I16", "I18")
async def test_a_signal_to_a_run_that_has_ended() -> None:
    """It is refused, not acknowledged and lost."""
    async with app(waits) as testing:
        run = await testing.start(waits(), id="it")
        await run.signal("go", "on")
        assert await run.result() == "on"
        for act in (run.signal("go"), run.cancel(), run.resume(), testing.get("it").pause()):
            with pytest.raises(RunClosed, match="run 'it' is completed"):
                await act
        with pytest.raises(RunClosed):
            await testing.get("it").terminate()


@pytest.mark.proves("C-06")
async def test_a_run_that_is_not_there() -> None:
    """Every action says which run there is not."""
    async with app(waits) as testing:
        run = testing.get("nobody")
        acts = (
            run.signal("go"),
            run.cancel(),
            run.resume(),
            run.query("done"),
            run.result(),
            run.status(),
            testing.get("nobody").history(),
            testing.get("nobody").entries(),
            testing.get("nobody").activities(),
            testing.get("nobody").pause(),
            testing.get("nobody").terminate(),
            testing.get("nobody").retry(),
            testing.get("nobody").fork("double"),
        )
        for act in acts:
            with pytest.raises(NotFound, match="there is no run 'nobody'"):
                await act
        assert await testing.get("nobody").delete() is False
        assert await testing.store.history("nobody") == []


@pytest.mark.proves("I11", "M-35")
async def test_a_start_under_a_taken_id() -> None:
    """The same start again is the same run; another input or workflow is refused with a way out."""
    async with app(waits, doubles) as testing:
        first = await testing.start(doubles(1), id="it")
        again = await testing.start(doubles(1), id="it")
        assert await first.result() == await again.result() == 2
        refusals = [
            (testing.start(doubles(2), id="it"), r" with another input \(\w+ differs\)"),
            (
                testing.start(waits(), id="it"),
                r" with another workflow \('doubles', not 'waits'\)",
            ),
            (testing.start(doubles(1), id="it", on_conflict="fail"), ""),
        ]
        for refused, why in refusals:
            with pytest.raises(
                RunExists, match=rf"'it' exists already{why} \(uid .*\): choose another id"
            ):
                await refused
        replaced = await testing.start(doubles(2), id="it", on_conflict="replace")
        assert await replaced.result() == 4
        with pytest.raises(InvalidValue, match="use attach, fail or replace"):
            await testing.start(doubles(2), id="it", on_conflict="ignore")  # type: ignore[call-overload]


async def test_an_app_that_is_not_open() -> None:
    """Nobody would go on with what it starts: it says how to open it."""
    closed = outlast.App("memory:", workflows=[doubles])
    with pytest.raises(Closed, match="use `async with"):
        await closed.start(doubles(1))


async def test_a_workflow_that_the_app_does_not_know() -> None:
    """The error says how to register it."""
    async with app(doubles) as testing:
        with pytest.raises(WorkflowMisuse, match=r"'waits' is not registered: App\(…, workflows"):
            await testing.start(waits())
        with pytest.raises(InvalidValue, match="two workflows are called"):
            outlast.App("memory:", workflows=[doubles, doubles])
        with pytest.raises(InvalidId, match="contains a colon"):
            await testing.start(doubles(1), id="a:b")


async def test_what_cannot_be_resumed_or_retried() -> None:
    """Only a halted or paused run is resumed, only a failed one retried; both say what it is."""
    async with app(waits) as testing:
        run = await testing.start(waits(), id="it")
        await testing.clock.settle()
        with pytest.raises(InvalidValue, match="is waiting: only a halted or paused run"):
            await run.resume()
        with pytest.raises(InvalidValue, match="is waiting: only a failed run can be retried"):
            await testing.get("it").retry()
        with pytest.raises(NotFound, match="there is no step 'ship'"):
            await testing.get("it").fork("ship")
        with pytest.raises(NotFound, match="there is no published value 'done'"):
            await run.query("done")
        await run.cancel()


# -- declarations ---------------------------------------------------------------------------------


def test_declarations_that_make_no_sense() -> None:
    """They fail where they stand, not when they are used."""
    with pytest.raises(InvalidValue, match="whole number of at least 1"):
        outlast.Retry(attempts=0)
    with pytest.raises(InvalidValue, match="backoff ≥ 1"):
        outlast.Retry(backoff=0.5)
    with pytest.raises(InvalidValue, match="positive timeout"):
        outlast.step(timeout=0)(double.definition.function)
    with pytest.raises(WorkflowMisuse, match="contains '/', '#' or ':'"):
        outlast.step(name="a/b")(double.definition.function)
    with pytest.raises(WorkflowMisuse, match="is not a function"):
        outlast.step(42)  # type: ignore[call-overload]
    with pytest.raises(WorkflowMisuse, match="leave it out"):
        outlast.workflow(name="a{b")(doubles.definition.function)


async def test_arguments_of_outlast_calls() -> None:
    """Negative times, names without characters and odd limits are refused where they are used."""

    @outlast.workflow
    async def odd(which: int) -> None:
        calls: list[Any] = [
            lambda: outlast.sleep(-1),
            lambda: outlast.sleep_until(datetime(2030, 1, 1)),  # noqa: DTZ001
            lambda: outlast.wait_for_signal(""),
            lambda: outlast.map(double, [1], concurrency=0),
            lambda: outlast.branch("way", 3),  # type: ignore[type-var]
            lambda: outlast.set_attributes(price=[1]),  # type: ignore[arg-type]
            lambda: outlast.scope(int),  # type: ignore[arg-type]
            lambda: outlast.loop(int, 1),  # type: ignore[arg-type]
        ]
        value = calls[which]()
        if value is not None:
            await value

    texts = [
        "is negative",
        "with a time zone",
        "signal name is empty",
        "concurrency ≥ 1",
        "records a str or a bool",
        "must be text, a number or a boolean",
        "has to be an async function",
        "has to be an async function",
    ]
    async with app(odd) as testing:
        for which, text in enumerate(texts):
            assert text in await failure_of(testing, odd, which)
