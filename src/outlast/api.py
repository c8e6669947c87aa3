"""What user code calls: `step` and `workflow` to declare, and what a workflow may ask for.

In an ``async def`` workflow each of these is awaited. In a plain ``def`` workflow the same names
block and return (`outlast.sync` has them with types to match). Outside a workflow a step is just
the function, and everything else says where it belongs.
"""

from __future__ import annotations

import asyncio
import random as _random
import uuid as _uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Generic, NoReturn, ParamSpec, Protocol, TypeVar, overload

from outlast.engine.bodies import StepContext, step_context
from outlast.engine.bridge import current_bridge
from outlast.engine.definition import StepDefinition, WorkflowDefinition, type_of_value
from outlast.engine.execution import Execution, current_execution
from outlast.engine.operations import branch as _branch
from outlast.engine.operations.child import ChildRun, ParentClose
from outlast.engine.operations.halt import HaltWait
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.region import Stop, run_loop, run_scope
from outlast.engine.operations.signal import SignalWait
from outlast.engine.operations.step import StepCall
from outlast.engine.retry import ONCE, Retry
from outlast.errors import ContinueAsNew, InvalidValue, WorkflowMisuse
from outlast.model.ids import check_name
from outlast.model.run import Attribute

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Choice = TypeVar("Choice", bound=str | bool)


class Step(Generic[P, R]):
    """A step. In a workflow it is recorded; called anywhere else it is just the function."""

    def __init__(self, definition: StepDefinition) -> None:
        self.definition = definition
        update_wrapper(self, definition.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        # Typed for the workflow that awaits it; `outlast.sync` has the type of a plain call.
        outcome: Coroutine[Any, Any, R]
        if _inside() is None:
            outcome = self.definition.function(*args, **kwargs)
        else:
            outcome = _perform(lambda run: run.answer(StepCall(run, self.definition, args, kwargs)))
        return outcome

    def compensate(self, function: Callable[[R], Any]) -> Step[[R], Any]:
        """Declare what undoes this step, given its result, when the run fails or is cancelled."""
        undo = StepDefinition(function, retry=Retry(attempts=5))
        self.definition.compensation = undo
        return Step(undo)


class Workflow(Generic[P, R_co]):
    """A workflow. Started by an app or as a child; it is not called."""

    def __init__(self, definition: WorkflowDefinition) -> None:
        self.definition = definition
        update_wrapper(self, definition.function)

    @property
    def name(self) -> str:
        """The name by which history knows it."""
        return self.definition.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        raise WorkflowMisuse(
            f"{self.name}() cannot be called: start it with `await app.start({self.name}, …)`, or "
            f"in a workflow with `await outlast.child({self.name}, …)`"
        )


class DeclareStep(Protocol):
    """`step(…)` with options: what then takes the function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Step[P, R]: ...


class DeclareWorkflow(Protocol):
    """`workflow(…)` with options: what then takes the function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Workflow[P, R]: ...


# -- declaring ------------------------------------------------------------------------------------


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry = ONCE,
    timeout: float | None = None,
    at_most_once: bool = False,
    process: bool = False,
) -> DeclareStep: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry = ONCE,
    timeout: float | None = None,
    at_most_once: bool = False,
    process: bool = False,
) -> Any:
    """Declare a step: what it returns is recorded, and once recorded it never runs again.

    `retry` says what to do when it raises; `timeout` (seconds) is for each attempt. With
    `process` it runs in a process of its own, which is killed on timeout. With `at_most_once` an
    attempt that was cut off by a crash is not repeated but fails.
    """

    def declare(function: Callable[..., Any]) -> Step[..., Any]:
        return Step(
            StepDefinition(
                function,
                name=name,
                retry=retry,
                timeout=timeout,
                at_most_once=at_most_once,
                process=process,
            )
        )

    return declare if function is None else declare(function)


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, version: int | str = 1) -> DeclareWorkflow: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int | str = 1,
) -> Any:
    """Declare a workflow: a function, ``async`` or plain, that calls steps and outlasts its
    process. Everything it does to the world it does through steps."""

    def declare(function: Callable[..., Any]) -> Workflow[..., Any]:
        return Workflow(WorkflowDefinition(function, name=name, version=version))

    return declare if function is None else declare(function)


# -- waiting --------------------------------------------------------------------------------------


def sleep(
    seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
) -> Coroutine[Any, Any, None]:
    """Sleep durably: the run leaves memory, and the process may end meanwhile."""
    pause = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
    if pause < timedelta(0):
        raise InvalidValue(f"sleep({pause}) is negative")

    return _perform(lambda _: asyncio.sleep(pause.total_seconds()), "sleep")


def sleep_until(moment: datetime) -> Coroutine[Any, Any, None]:
    """Sleep durably until a moment, which must have a time zone."""
    if moment.tzinfo is None:
        raise InvalidValue("sleep_until() needs a datetime with a time zone")

    async def asleep(run: Execution) -> None:
        await asyncio.sleep(max((moment - run.now).total_seconds(), 0))

    return _perform(asleep, "sleep_until")


@overload
def wait_for(
    signal: str, type: type[T], *, timeout: timedelta | float | None = None
) -> Coroutine[Any, Any, T]: ...
@overload
def wait_for(
    signal: str, type: Any = Any, *, timeout: timedelta | float | None = None
) -> Coroutine[Any, Any, Any]: ...
def wait_for(signal: str, type: Any = Any, *, timeout: timedelta | float | None = None) -> Any:
    """Wait for a signal by name; a `SignalTimeout` is raised when it does not come in time. A
    signal that came before anybody waited is kept."""
    check_name(signal, "signal name")
    limit = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
    return _perform(lambda run: run.answer(SignalWait(run, signal, type, limit)), "wait_for")


@overload
def halt(data: Any, type: type[T]) -> Coroutine[Any, Any, T]: ...
@overload
def halt(data: Any = None, type: Any = Any) -> Coroutine[Any, Any, Any]: ...
def halt(data: Any = None, type: Any = Any) -> Any:
    """Wait for a person: the run is `halted` and shows `data` until somebody resumes it with a
    value."""
    return _perform(lambda run: run.answer(HaltWait(run, data, type)), "halt")


# -- structure ------------------------------------------------------------------------------------


def child(
    workflow: Workflow[P, R],
    *args: Any,
    id: str | None = None,
    parent_close: ParentClose | str = ParentClose.CANCEL,
    **kwargs: Any,
) -> Coroutine[Any, Any, R]:
    """Run another workflow as a child, with a history of its own, and wait for its result."""
    policy = ParentClose(parent_close)
    return _perform(
        lambda run: run.answer(ChildRun(run, workflow.definition, args, kwargs, id, policy)),
        "child",
    )


def map(
    step: Step[[T], R],
    items: Iterable[T],
    *,
    concurrency: int = 10,
    tolerate: int = 0,
    enough: int | None = None,
) -> Coroutine[Any, Any, list[R]]:
    """Call a step for each item, `concurrency` at once; the results in the order of the items.

    The first failure beyond `tolerate` ends the map with `MapFailed`; tolerated ones stand in the
    list as `StepFailed` values. With `enough`, the map is over when so many have succeeded, and
    the others are None.
    """
    found = list(items)
    return _perform(
        lambda run: run.answer(
            MapCall(
                run,
                step.definition,
                found,
                concurrency=concurrency,
                tolerate=tolerate,
                enough=enough,
            )
        ),
        "map",
    )


def scope(
    body: Callable[..., Awaitable[R]], *args: Any, name: str | None = None, **kwargs: Any
) -> Coroutine[Any, Any, R]:
    """Run part of a workflow so that, once it is finished, only its result is kept in replay."""
    label = name or body.__name__
    return _perform(lambda run: run_scope(run, body, args, kwargs, label), "scope")


def loop(
    body: Callable[[T], Awaitable[T | Stop[R]]], state: T, *, name: str | None = None
) -> Coroutine[Any, Any, R]:
    """Call `body` with a state, again and again with the state it returns, until it returns
    ``outlast.Stop(result)``. A replay begins at the last iteration, however many there were."""
    label = name or body.__name__
    return _perform(lambda run: run_loop(run, body, state, label), "loop")


def branch(name: str, choice: Choice) -> Choice:
    """Record a decision and give it back; in a replay, the one that was recorded."""
    return _branch.branch(_execution("branch"), name, choice)


def patched(id: str) -> bool:
    """Whether this run takes the new code: True for runs that had not passed this point when the
    new code came, False for those that had."""
    return _branch.patched(_execution("patched"), check_name(id, "patch id"))


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this life of the run and begin the next, with new input and an empty history. Signals
    that were not taken yet go along."""
    _execution("continue_as_new")
    raise ContinueAsNew(args, kwargs)


# -- telling and knowing --------------------------------------------------------------------------


def publish(**values: Any) -> None:
    """Show values to whoever queries the run, from the next commit on; they stay readable when
    the run is asleep or over."""
    run = _execution("publish")
    for name, value in values.items():
        where = f"published {name!r}"
        run.draft.published[name] = run.codec.encode(value, type_of_value(value), where=where)


def set_attributes(**values: Attribute) -> None:
    """Set search attributes of the run: text, numbers, booleans."""
    run = _execution("set_attributes")
    for name, value in values.items():
        if not isinstance(value, str | int | float):
            raise InvalidValue(f"attribute {name!r} must be text, a number or a boolean")
        run.draft.attributes[name] = value


def now() -> datetime:
    """The time of the last event: the same in every replay."""
    return _execution("now").now


def random() -> _random.Random:
    """A source of random numbers that gives the same ones in every replay."""
    run = _execution("random")
    return _random.Random(f"{run.seed}/{run.scope.key('random')}")


def uuid4() -> _uuid.UUID:
    """A random UUID that is the same in every replay."""
    return _uuid.UUID(int=random().getrandbits(128), version=4)


def step_info() -> StepContext:
    """What a step may know while it runs: its run, key, attempt and idempotency key."""
    try:
        return step_context.get()
    except LookupError:
        raise WorkflowMisuse("step_info() works in a step that a workflow has called") from None


def heartbeat(details: Any = None) -> None:
    """Report that a long step is alive, with details that its next attempt can read by
    `last_heartbeat`."""
    context = step_info()
    kind = type_of_value(details)
    context.report(context.codec.encode(details, kind, where="heartbeat details"))


@overload
def last_heartbeat(type: type[T]) -> T | None: ...
@overload
def last_heartbeat(type: Any = Any) -> Any: ...
def last_heartbeat(type: Any = Any) -> Any:
    """What an earlier attempt of this step reported last, or None."""
    context = step_info()
    if context.progress is None:
        return None
    return context.codec.decode(context.progress, type, where="heartbeat details")


# -- where are we? --------------------------------------------------------------------------------


def _inside() -> Execution | None:
    bridge = current_bridge()
    return current_execution() if bridge is None else bridge.execution


def _execution(name: str) -> Execution:
    run = _inside()
    if run is None:
        raise WorkflowMisuse(f"outlast.{name}() works in a workflow only")
    return run


def _perform(
    ask: Callable[[Execution], Coroutine[Any, Any, Any]], name: str = ""
) -> Coroutine[Any, Any, Any]:
    """Ask in the way of the workflow that is calling: a coroutine to await, or the answer."""
    bridge = current_bridge()
    if bridge is not None:
        answer: Coroutine[Any, Any, Any] = bridge.call(ask(bridge.execution))
        return answer
    return ask(_execution(name))
