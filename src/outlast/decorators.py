"""`step` and `workflow`: how a user's functions become known."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import update_wrapper
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
