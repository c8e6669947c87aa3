"""What a plain workflow has of its own: steps that are called, not awaited, and questions that block."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from outlast import context, decorators
from outlast.call import Call
from outlast.decorators import Step
from outlast.engine.definitions.definition import StepDefinition
from outlast.engine.operations.child import ParentClose
from outlast.engine.operations.scopes import Stop
from outlast.engine.replay.sync_workflow import current_sync_workflow
from outlast.errors import StepFailed, WorkflowMisuse
from outlast.model.queue_policy import QueueOptions

if TYPE_CHECKING:
    from typing_extensions import TypeForm

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


class PlainStep(Protocol[P, R_co]):
    """A step as a plain workflow, or a program without workflows, calls it."""

    definition: StepDefinition

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Its result."""
        ...

    @overload
    def compensate(self, function: Callable[[R_co], Any]) -> Any: ...
    @overload
    def compensate(
        self, *, unknown: Literal[True]
    ) -> Callable[[Callable[Concatenate[str, P], Any]], Any]: ...
    def compensate(self, function: Any = None, *, unknown: bool = False) -> Any:
        """Declare what undoes this step; with `unknown`, what undoes a call of which it is not known
        whether it was done, given its idempotency key and its arguments."""
        ...


class DeclareStep(Protocol):
    """`step(…)` with options: what then takes the function."""

    def __call__(self, function: Callable[P, R], /) -> PlainStep[P, R]:
        """The step."""
        ...


OneArgument = Step[[T], R] | PlainStep[[T], R]
"""A step that takes one item."""


@overload
def step(function: Callable[P, R], /) -> PlainStep[P, R]: ...
@overload
def step(**options: Any) -> DeclareStep: ...
def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a step for plain workflows; see `outlast.step`."""
    declare: Any = decorators.step
    return declare(**options) if function is None else declare(function)


def sleep(
    seconds: float | timedelta = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
) -> None:
    """Sleep durably: the run leaves memory, and the process may end meanwhile. With `math.inf` it sleeps
    until it is cancelled."""
    _plain("sleep")
    cast("None", context.sleep(seconds, minutes=minutes, hours=hours, days=days))


def sleep_until(moment: datetime) -> None:
    """Sleep durably until a moment, which must have a time zone."""
    _plain("sleep_until")
    cast("None", context.sleep_until(moment))


@overload
def wait_for_signal(signal: str, *, timeout: timedelta | float | None = None) -> Any: ...
@overload
def wait_for_signal(
    signal: str, type: TypeForm[T], *, timeout: timedelta | float | None = None
) -> T: ...
def wait_for_signal(
    signal: str, type: Any = Any, *, timeout: timedelta | float | None = None
) -> Any:
    """Wait for a signal by name; `SignalTimeout` when it does not come in time."""
    _plain("wait_for_signal")
    return context.wait_for_signal(signal, type, timeout=timeout)


@overload
def halt(data: Any = None) -> Any: ...
@overload
def halt(data: Any, type: TypeForm[T]) -> T: ...
@overload
def halt(*, type: TypeForm[T]) -> T: ...
def halt(data: Any = None, type: Any = Any) -> Any:
    """Wait for a person, showing `data`, until somebody resumes the run with a value."""
    _plain("halt")
    return context.halt(data, type)


def child(
    call: Call[R],
    *,
    id: str | None = None,
    parent_close: ParentClose | Literal["cancel", "abandon"] = ParentClose.CANCEL,
    queue: str | QueueOptions | None = None,
) -> R:
    """Run the call of a workflow as a child and wait for its result: ``child(order("Momo"))``."""
    _plain("child")
    return cast("R", context.child(call, id=id, parent_close=parent_close, queue=queue))


@overload
def map(step: OneArgument[T, R], items: Iterable[T], *, concurrency: int = 10) -> list[R]: ...
@overload
def map(
    step: OneArgument[T, R], items: Iterable[T], *, concurrency: int = 10, tolerate: int
) -> list[R | StepFailed]: ...
@overload
def map(
    step: OneArgument[T, R], items: Iterable[T], *, concurrency: int = 10, enough: int | None
) -> list[R | None]: ...
@overload
def map(
    step: OneArgument[T, R],
    items: Iterable[T],
    *,
    concurrency: int = 10,
    tolerate: int,
    enough: int | None,
) -> list[R | StepFailed | None]: ...
def map(step: Any, items: Iterable[Any], **options: Any) -> Any:
    """Call a step for each item, several at once; the results in the order of the items. See `outlast.map`."""
    _plain("map")
    return context.map(step, items, **options)


def scope(body: Callable[..., R], *args: Any, name: str | None = None, **kwargs: Any) -> R:
    """Run part of a workflow so that, once it is finished, only its result is kept in replay."""
    _plain("scope")
    return cast("R", context.scope(cast("Any", body), *args, name=name, **kwargs))


def loop(body: Callable[[T], T | Stop[R]], state: T, *, name: str | None = None) -> R:
    """Call `body` with a state, again and again with the state it returns, until it returns
    ``Stop(result)``. A replay begins at the last iteration."""
    _plain("loop")
    return cast("R", context.loop(cast("Any", body), state, name=name))


def _plain(name: str) -> None:
    if current_sync_workflow() is None:
        raise WorkflowMisuse(
            f"outlast.sync.{name}() works in a plain `def` workflow: in an `async def` one use "
            f"`await outlast.{name}(…)`"
        )
