"""What gives a workflow its structure: children, maps, scopes, loops, branches, new lives."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from outlast.api.declaring import Step, Workflow
from outlast.api.inside import perform, the_run
from outlast.engine.bridge import current_bridge, run_in_thread
from outlast.engine.execution import Execution
from outlast.engine.operations import branch as _branch
from outlast.engine.operations.child import ChildRun, ParentClose
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.region import Stop, run_loop, run_scope
from outlast.errors import ContinueAsNew
from outlast.model.ids import check_name
from outlast.model.place import InQueue

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Choice = TypeVar("Choice", bound=str | bool)


def child(
    workflow: Workflow[P, R],
    *args: Any,
    id: str | None = None,
    parent_close: ParentClose | str = ParentClose.CANCEL,
    queue: str | InQueue | None = None,
    **kwargs: Any,
) -> Coroutine[Any, Any, R]:
    """Run another workflow as a child, with a history of its own, and wait for its result. With
    `queue` it waits there for its turn before it begins."""
    policy = ParentClose(parent_close)
    place = InQueue(queue) if isinstance(queue, str) else queue
    return perform(
        lambda run: run.answer(ChildRun(run, workflow.definition, args, kwargs, id, policy, place)),
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
    return perform(
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
    label = check_name(name or body.__name__, "name of a scope")
    return perform(lambda run: run_scope(run, _awaited(run, body), args, kwargs, label), "scope")


def loop(
    body: Callable[[T], Awaitable[T | Stop[R]]], state: T, *, name: str | None = None
) -> Coroutine[Any, Any, R]:
    """Call `body` with a state, again and again with the state it returns, until it returns
    ``outlast.Stop(result)``. A replay begins at the last iteration, however many there were."""
    label = check_name(name or body.__name__, "name of a loop")
    return perform(lambda run: run_loop(run, _awaited(run, body), state, label), "loop")


def branch(name: str, choice: Choice) -> Choice:
    """Record a decision and give it back; in a replay, the one that was recorded."""
    return _branch.branch(the_run("branch"), name, choice)


def patched(id: str) -> bool:
    """Whether this run takes the new code: True for runs that had not passed this point when the
    new code came, False for those that had."""
    return _branch.patched(the_run("patched"), check_name(id, "patch id"))


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End this life of the run and begin the next, with new input and an empty history. Signals
    that were not taken yet go along."""
    the_run("continue_as_new")
    raise ContinueAsNew(args, kwargs)


def _awaited(run: Execution, body: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """A body that can be awaited. That of a plain workflow is plain, and gets a thread like it."""
    if inspect.iscoroutinefunction(body) or current_bridge() is None:
        return body

    @wraps(body)
    async def in_thread(*args: Any, **kwargs: Any) -> Any:
        return await run_in_thread(run, body, args, kwargs)

    return in_thread
