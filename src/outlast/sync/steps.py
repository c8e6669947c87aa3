"""`step` with the types of a plain call: a plain workflow, or a program without workflows, does not await it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from outlast import decorators
from outlast.engine.definitions.definition import StepDefinition

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


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


@overload
def step(function: Callable[P, R], /) -> PlainStep[P, R]: ...
@overload
def step(**options: Any) -> DeclareStep: ...
def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare a step for plain workflows; see `outlast.step`."""
    declare: Any = decorators.step
    return declare(**options) if function is None else declare(function)
