"""Scopes and loops: what is finished inside is one recorded result, and is not run again.

They bound what a replay has to execute. A finished scope answers with its result; a loop goes on
from the state after its last finished iteration. What is not finished is run again: where a step
could still be undone, and where a task still runs that was made inside.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Raw

from outlast.engine.definitions.signature import Signature
from outlast.engine.operations.operation import Operation
from outlast.engine.replay.error_text import text_of
from outlast.engine.replay.scope import Scope, current_scope
from outlast.errors import ScopeFailed, WorkflowMisuse
from outlast.model.event import Event
from outlast.model.payloads import (
    LoopIterated,
    Payload,
    ScopeCompleted,
    ScopeFailedEvent,
    ScopeStarted,
)

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution

S = TypeVar("S")


class Stop(Generic[S]):
    """What a loop's body returns to end the loop, with the loop's result."""

    def __init__(self, value: S) -> None:
        self.value = value


class Region(Operation):
    """A scope: open from its start to its recorded end."""

    wait_kind = "scope"

    def __init__(self, execution: Execution, name: str, signature: Signature) -> None:
        self.name = f"scope:{name}"
        self._execution = execution
        self._signature = signature

    def intent(self) -> Payload:
        return ScopeStarted()

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case ScopeCompleted(output=output):
                self.resolve(self._signature.decode_result(self._execution.codec, output))
                return True
            case ScopeFailedEvent(error=error, error_type=error_type):
                self.reject(ScopeFailed(self.key, error, error_type))
                return True
        return False


async def run_scope(
    execution: Execution, body: Callable[..., Awaitable[Any]], args: Any, kwargs: Any, name: str
) -> Any:
    """Run `body` in a scope of its own, or give what was recorded when it finished."""
    signature = Signature(body)
    region = Region(execution, name, signature)
    region.future = execution.loop.create_future()
    execution.ask(region)
    if region.key in execution.past.closed_scopes:
        region.ends_by_itself = True
        return await _recorded(region.future)
    inside = Scope(f"{region.key}/", execution.scope)
    outside = current_scope.set(inside)
    try:
        value = await _awaitable(body(*args, **kwargs), region.key)
        output = signature.encode_result(execution.codec, value)
        again = _runs_again(execution, inside)
        execution.say(region.key, ScopeCompleted(output=output, undoable=again))
    except asyncio.CancelledError:
        execution.abandon(region)
        raise
    except Exception as error:
        text, kind = text_of(error), type(error).__name__
        again = _runs_again(execution, inside)
        execution.say(region.key, ScopeFailedEvent(error=text, error_type=kind, undoable=again))
        raise ScopeFailed(region.key, text, kind) from error
    finally:
        current_scope.reset(outside)
    return signature.decode_result(execution.codec, output)


class Iterations(Operation):
    """A loop that is waiting for history to reach its last finished iteration."""

    wait_kind = "loop"
    ends_by_itself = True

    def __init__(self, key: str) -> None:
        self.key = key
        self.name = key
        self.recorded = True

    def intent(self) -> Payload:
        raise AssertionError("a loop has no intent: its iterations speak for it")

    def apply(self, event: Event, payload: Payload) -> bool:
        if isinstance(payload, LoopIterated):
            self.resolve(payload)
            return True
        return False


async def run_loop(
    execution: Execution, body: Callable[[Any], Awaitable[Any]], state: Any, name: str
) -> Any:
    """Call `body` with the state it returned last, until it returns a `Stop`."""
    signature = Signature(body)
    key = execution.scope.key(f"loop:{name}")
    iteration = execution.past.iterations.get(key, 0)
    if iteration:
        last = Iterations(key)
        last.future = execution.loop.create_future()
        execution.open[key] = last
        recorded: LoopIterated = await _recorded(last.future)
        state = signature.decode_first(execution.codec, recorded.state)
    inside = Scope(f"{key}/", execution.scope)
    while True:
        outside = current_scope.set(Scope(f"{key}/{iteration}/", inside))
        try:
            result = await _awaitable(body(state), key)
        finally:
            current_scope.reset(outside)
        if isinstance(result, Stop):
            return result.value
        encoded: Raw
        encoded, state = signature.roundtrip_first(execution.codec, result)
        iteration += 1
        again = _runs_again(execution, inside)
        execution.say(key, LoopIterated(iteration=iteration, state=encoded, undoable=again))


def _runs_again(execution: Execution, inside: Scope) -> bool:
    """Whether a replay has to run what was done so far in this scope."""
    return inside.tasks_inside > 0 or execution.undoing.inside(inside.path.rstrip("/"))


def _awaitable(value: Any, key: str) -> Awaitable[Any]:
    if not inspect.isawaitable(value):
        raise WorkflowMisuse(f"the body of {key!r} has to be an async function")
    return value


async def _recorded(future: asyncio.Future[Any]) -> Any:
    """Await what history holds. If the code was cancelled on the way there, that was dealt with
    inside, since there was an end: it is no concern of those outside now."""
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            continue
        except Exception:  # noqa: BLE001 - it is raised below
            break
    return future.result()
