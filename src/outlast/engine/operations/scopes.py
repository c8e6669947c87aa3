"""Scopes, loops and branches: results of workflow code that are recorded, so that a replay need not run it again.

They bound what a replay has to execute. A finished scope answers with its result; a loop continues from the state
after its last finished iteration. Code runs again if it is not finished, if a step inside could still be undone, or
if a task that was created inside still runs.

A branch records a choice of the code, or which version of the code a run started with. It is answered at once: live
with the choice of the code, in a replay with the recorded one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Raw

from outlast._public import public
from outlast.engine.definitions.signature import Signature
from outlast.engine.operations.operation import Operation
from outlast.engine.replay.error_text import details_of, text_of, with_place
from outlast.engine.replay.event_loop import Scope, inside_scope
from outlast.errors import ScopeFailed, WorkflowMisuse
from outlast.model.event import Event
from outlast.model.ids import check_name
from outlast.model.payloads import (
    BranchEvaluated,
    LoopIterated,
    Payload,
    ScopeCompleted,
    ScopeFailedEvent,
    ScopeStarted,
)
from outlast.model.run import WaitKind
from outlast.model.validation import check_value

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution

S = TypeVar("S")


@public
class Stop(Generic[S]):
    """Returned by the body of a loop to end the loop with a result."""

    def __init__(self, value: S) -> None:
        self.value = value


class ScopeCall(Operation):
    """A scope: open from its start to its recorded end."""

    wait_kind = WaitKind.SCOPE

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
            case ScopeFailedEvent(error=error, error_type=error_type, details=details):
                self.reject(with_place(ScopeFailed(self.key, error, error_type), details))
                return True
        return False


async def run_scope(
    execution: Execution, body: Callable[..., Awaitable[Any]], args: Any, kwargs: Any, name: str
) -> Any:
    """Run `body` in a scope, or return the recorded result of a finished one."""
    signature = Signature(body)
    region = ScopeCall(execution, name, signature)
    region.future = execution.loop.create_future()
    execution.request(region)
    if region.key in execution.history.closed_scopes:
        region.ends_by_itself = True
        return await _recorded(region.future)
    inside = Scope(f"{region.key}/", execution.scope)
    with inside_scope(inside):
        try:
            value = await _awaitable(body(*args, **kwargs), region.key)
            output = signature.encode_result(execution.codec, value)
            again = _runs_again(execution, inside)
            execution.record(region.key, ScopeCompleted(output=output, undoable=again))
        except asyncio.CancelledError:
            execution.abandon(region)
            raise
        except Exception as error:  # noqa: BLE001 - it is recorded and raised again
            text, kind = text_of(error), type(error).__name__
            again = _runs_again(execution, inside)
            failed = ScopeFailedEvent(
                error=text, error_type=kind, undoable=again, details=details_of(error)
            )
            execution.record(region.key, failed)
            # Raised as a replay raises it.
            failure = with_place(ScopeFailed(region.key, text, kind), failed.details)
            raise failure from failure.__cause__
    return signature.decode_result(execution.codec, output)


class LoopWait(Operation):
    """A loop that waits in replay until history reaches its last finished iteration."""

    wait_kind = WaitKind.LOOP
    ends_by_itself = True

    def __init__(self, key: str) -> None:
        self.key = key
        self.name = key
        self.recorded = True

    def intent(self) -> Payload:
        raise AssertionError("a loop has no intent: only its iterations are recorded")

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
    iteration = execution.history.iterations.get(key, 0)
    if iteration:
        last = LoopWait(key)
        last.future = execution.loop.create_future()
        execution.open[key] = last
        recorded: LoopIterated = await _recorded(last.future)
        state = signature.decode_first(execution.codec, recorded.state)
    inside = Scope(f"{key}/", execution.scope)
    while True:
        with inside_scope(Scope(f"{key}/{iteration}/", inside)):
            result = await _awaitable(body(state), key)
        if isinstance(result, Stop):
            return result.value
        encoded: Raw
        encoded, state = signature.roundtrip_first(execution.codec, result)
        iteration += 1
        again = _runs_again(execution, inside)
        execution.record(key, LoopIterated(iteration=iteration, state=encoded, undoable=again))


def _runs_again(execution: Execution, inside: Scope) -> bool:
    """Whether a replay has to run the code of this scope again."""
    return inside.tasks_inside > 0 or execution.compensations.inside(inside.path.rstrip("/"))


def _awaitable(value: Any, key: str) -> Awaitable[Any]:
    if not inspect.isawaitable(value):
        raise WorkflowMisuse(f"the body of {key!r} has to be an async function")
    return value


async def _recorded(future: asyncio.Future[Any]) -> Any:
    """Await a recorded result. If the code was cancelled before it, the scope's own code handled that, since it ended:
    the cancellation does not reach the code outside."""
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            continue
        except Exception:  # noqa: BLE001 - it is raised below
            break
    return future.result()


Choice = TypeVar("Choice", bound=str | bool)


def branch(execution: Execution, name: str, choice: Choice) -> Choice:
    """Record a choice, or return the recorded one."""
    if not isinstance(choice, str | bool):
        raise WorkflowMisuse(
            f"branch({name!r}, …) records a str or a bool, not {type(choice).__name__}"
        )
    key = execution.scope.key(f"branch:{check_name(name, 'name of a branch')}")
    text = choice if isinstance(choice, str) else str(choice).lower()
    check_value(text, "choice", f"branch {name!r}")
    recorded = execution.history.choices.get(key, text)
    execution.record(key, BranchEvaluated(branch_name=name, choice=recorded))
    return cast("Choice", recorded == "true" if isinstance(choice, bool) else recorded)


def patched(execution: Execution, id: str) -> bool:
    """Whether this run takes the new code: True unless it passed this point before the patch."""
    key = execution.scope.key(f"patch:{id}")
    if key not in execution.history.choices and execution.replaying:
        return False
    execution.record(key, BranchEvaluated(branch_name=f"patch:{id}", choice="true"))
    return True
