"""`@step` and `@workflow`, and what an app reads from the lists of them that it is given.

A workflow may start the workflows that its code names. An app that has the code of a parent has that of its children
too, so children need not be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import timedelta
from functools import update_wrapper
from inspect import getclosurevars
from types import CodeType, ModuleType
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from outlast._public import public
from outlast.call import Call
from outlast.engine.definitions.definition import StepDefinition, WorkflowDefinition
from outlast.engine.definitions.retry import ONCE, Retry
from outlast.engine.operations.step import step_call
from outlast.engine.replay.execution import current_execution
from outlast.engine.replay.sync_workflow import current_sync_workflow
from outlast.errors import InvalidValue, WorkflowMisuse

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@public
class Step(Generic[P, R]):
    """A step. In a workflow it is recorded; called anywhere else it is just the function."""

    def __init__(self, definition: StepDefinition) -> None:
        self.definition = definition
        update_wrapper(self, definition.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        # Typed for the workflow that awaits it; `outlast.sync` has the type of a plain call.
        outcome: Coroutine[Any, Any, R]
        if (run := current_execution()) is not None:
            outcome = run.perform(step_call(run, self.definition, args, kwargs))
            # Whom Python names if it is never awaited.
            outcome.__qualname__ = self.definition.name  # type: ignore[attr-defined]
        elif (bridge := current_sync_workflow()) is not None:
            run = bridge.execution
            outcome = bridge.call(run.perform(step_call(run, self.definition, args, kwargs)))
        else:
            outcome = self.definition.function(*args, **kwargs)
        return outcome

    def __repr__(self) -> str:
        return f"<step {self.definition.name}>"

    def __reduce__(self) -> str:
        return str(self.definition.function.__qualname__)  # pickled by name, as functions are

    @overload
    def compensate(self, function: Callable[[R], Any]) -> Step[[R], Any]: ...
    @overload
    def compensate(
        self, *, unknown: Literal[True]
    ) -> Callable[[Callable[Concatenate[str, P], Any]], Step[..., Any]]: ...
    def compensate(self, function: Any = None, *, unknown: bool = False) -> Any:
        """Declare what undoes this step, given its result, when the run fails or is cancelled.

        ``@charge.compensate(unknown=True)`` declares what undoes a call whose outcome is unknown,
        because its process died, it took too long or it was cut off: the function gets the call's
        idempotency key and then the call's arguments, and finds out itself what there is to undo.
        """

        def declare(function: Callable[..., Any]) -> Step[..., Any]:
            undo = StepDefinition(function, retry=Retry(attempts=5))
            if unknown:
                self.definition.unknown_compensation = undo
            else:
                self.definition.compensation = undo
            return Step(undo)

        return declare if function is None else declare(function)


@public
class Workflow(Generic[P, R_co]):
    """A workflow. Calling it gives an inert `Call`: start that with `App.start`, or await it in a
    workflow as a child run."""

    def __init__(self, definition: WorkflowDefinition) -> None:
        self.definition = definition
        update_wrapper(self, definition.function)

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    def __reduce__(self) -> str:
        return str(self.definition.function.__qualname__)

    @property
    def name(self) -> str:
        """The name by which history knows it."""
        return self.definition.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        self.definition.signature.check(args, kwargs)
        return Call(self, args, kwargs)


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


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry = ONCE,
    timeout: float | timedelta | None = None,
    at_most_once: bool = False,
    process: bool = False,
    queue: str | None = None,
    key: str | Callable[..., str] | None = None,
    priority: int | Callable[..., int] = 0,
    transactional: bool = False,
    raises: type[Exception] | tuple[type[Exception], ...] = (),
) -> DeclareStep: ...
@public
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retry: Retry = ONCE,
    timeout: float | timedelta | None = None,
    at_most_once: bool = False,
    process: bool = False,
    queue: str | None = None,
    key: str | Callable[..., str] | None = None,
    priority: int | Callable[..., int] = 0,
    transactional: bool = False,
    raises: type[Exception] | tuple[type[Exception], ...] = (),
) -> Any:
    """Declare a step: what it returns is recorded, and once recorded it never runs again.

    `retry` says what to do when it raises; `timeout` (seconds, or a timedelta) is for each attempt. With
    `process` it runs in a process of its own, which is killed on timeout. With `at_most_once` an
    attempt that was cut off by a crash is not repeated but fails. With `queue` it is done by any
    worker that has its code: ``App(…, steps=[it])``; `key`, the name of a parameter or a function of
    the arguments, says whose turn a call is, and `priority` which of those goes first. With
    `transactional` what it writes through `outlast.connection()` and its completion are one
    transaction: exactly once (PostgreSQL). With `raises`, a class of exceptions or a tuple of them, the
    workflow can catch these by their own class, ``except PaymentDeclined:``; every other exception of a step is
    a `StepFailed`.
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
                queue=queue,
                key=key,
                priority=priority,
                transactional=transactional,
                raises=raises,
            )
        )

    return declare if function is None else declare(function)


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(*, name: str | None = None, version: int | str = 1) -> DeclareWorkflow: ...
@public
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


def workflows_in(given: Iterable[object]) -> list[Workflow[..., Any]]:
    """The workflows in a list; a typed error for any other object."""
    found = []
    for one in _listed(given, "workflows", "checkout"):
        if not isinstance(one, Workflow):
            raise WorkflowMisuse(
                f"{one!r} is not a workflow: decorate the function with @outlast.workflow"
            )
        found.append(one)
    return found


def with_children(workflows: list[Workflow[..., Any]]) -> list[WorkflowDefinition]:
    """What these workflows are, and those that they may start; each has a name of its own."""
    given = [workflow.definition for workflow in workflows]
    names = [definition.name for definition in given]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InvalidValue(
            f"two workflows are called {sorted(twice)}: give one another name, "
            "history knows them by it"
        )
    children = {workflow.name: workflow.definition for workflow in reachable(workflows)}
    return given + [one for name, one in children.items() if name not in names]


def queued_steps_in(given: Iterable[object]) -> list[StepDefinition]:
    """The steps in a list; a typed error for any other object, or a step without a queue."""
    found = []
    for one in _listed(given, "steps", "render"):
        if not isinstance(one, Step):
            raise WorkflowMisuse(f"{one!r} is not a step: decorate the function with @outlast.step")
        if one.definition.queue is None:
            raise InvalidValue(
                f"step {one.definition.name!r} has no queue, so it runs where its run is: leave it out "
                "of `steps`, or declare it with step(queue=…)"
            )
        found.append(one.definition)
    return found


def _listed(given: Iterable[object], what: str, example: str) -> list[object]:
    try:
        return list(given)
    except TypeError:
        raise InvalidValue(f"{what}={given!r}: use a list, {what}=[{example}]") from None


def reachable(workflows: Iterable[Workflow[..., Any]]) -> list[Workflow[..., Any]]:
    """The workflows that these name, and those that those name, and so on."""
    found: dict[int, Workflow[..., Any]] = {}
    waiting = list(workflows)
    while waiting:
        for workflow in _named_by(waiting.pop().definition.function):
            if id(workflow) not in found:
                found[id(workflow)] = workflow
                waiting.append(workflow)
    return list(found.values())


def _named_by(function: Callable[..., Any]) -> Iterator[Workflow[..., Any]]:
    try:
        closed = getclosurevars(function).nonlocals.values()
        code, known = function.__code__, function.__globals__
    except (AttributeError, TypeError, ValueError):
        return  # not a plain function: its children have to be listed
    names = set(_names(code))
    values = [*closed, *(known[name] for name in names if name in known)]
    for value in values:
        if isinstance(value, Workflow):
            yield value
        elif isinstance(value, ModuleType):
            inside = (vars(value).get(name) for name in names)
            yield from (found for found in inside if isinstance(found, Workflow))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
