"""Scopes, loops and branches: results of workflow code that are recorded, so that a replay need not run it again.

They bound what a replay has to execute. A finished scope answers with its result; a loop continues from the state
after its last finished iteration. Code runs again if it is not finished, if a step inside could still be undone, or
if a task that was created inside still runs.

A branch records a choice of the code, or which version of the code a run started with. It is answered at once: live
with the choice of the code, in a replay with the recorded one.

A scope that fails is compensated, as a run is that fails or is cancelled: its completed steps are undone in reverse
order. A step with a compensation is registered when its completion is delivered, so the order is that of history; the
same holds for each item of a map. A step whose outcome is unknown (a crash, a timeout, a cut-off attempt) is registered
when that is known, and only undone by a compensation for unknown outcomes, which gets the idempotency key and the
arguments. Compensating a run is a coroutine of outlast that replaces the user's, once that is closed. Each compensation is
a step with the key ``undo/<the step's key>``, recorded, retried and resumed like any other. A cancel does not reach it.
One that fails for good, or does not accept the result, does not keep the others from running.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from msgspec import Raw

from outlast._public import public
from outlast.engine.definitions.raised import step_failure
from outlast.engine.definitions.signature import Signature
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.step import step_call
from outlast.engine.replay.error_text import details_of, text_of, with_place
from outlast.engine.replay.event_loop import Scope, inside_scope
from outlast.errors import ContinueAsNew, OutlastError, ScopeFailed, StepFailed, WorkflowMisuse
from outlast.model.event import Event
from outlast.model.ids import check_name
from outlast.model.payloads import (
    BranchEvaluated,
    CompensationCompleted,
    CompensationFailed,
    CompensationStarted,
    LoopIterated,
    Payload,
    ScopeCompleted,
    ScopeFailedEvent,
    ScopeStarted,
)
from outlast.model.run import WaitKind
from outlast.model.validation import check_value

if TYPE_CHECKING:
    from outlast.engine.definitions.definition import StepDefinition
    from outlast.engine.operations.operation import Operation
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
        except Exception as error:  # it is recorded and raised again
            if execution.parks_on(error):
                execution.abandon(region)
                raise
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


UNDO = "undo/"
"""The scope of all compensations."""


class Undo(NamedTuple):
    """A step that has to be undone, and the step that does it, if there is one."""

    key: str
    step: StepDefinition | None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed
    is_unknown: bool = False


class Compensations:
    """What a run would have to undo, and the coroutine that does it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._registered: list[Undo] = []
        self.has_started = False

    def register(self, key: str, step: StepDefinition, result: Any) -> None:
        """Remember a completed step if it has a compensation."""
        if step.compensation is not None and not self.has_started:
            self._registered.append(Undo(key, step.compensation, (result,)))

    def register_unknown(
        self, key: str, call: Operation, step: StepDefinition, args: Any, kwargs: Any
    ) -> None:
        """Remember a step, requested by `call`, whose outcome stays unknown."""
        if step.is_undoable and not self.has_started:
            idempotency_key = f"{self._execution.life_of(call)}/{key}"
            undo = step.unknown_compensation
            self._registered.append(Undo(key, undo, (idempotency_key, *args), kwargs, True))

    def inside(self, path: str) -> bool:
        """Whether something below `path` has to be undone if the run fails, or may have to be."""
        below = f"{path}/"
        return any(undo.key.startswith(below) for undo in reversed(self._registered)) or any(
            operation.is_undoable and operation.key.startswith(below)
            for operation in self._execution.open.values()
        )

    def begin(self, main: asyncio.Task[Any]) -> Coroutine[Any, Any, Any] | None:
        """The coroutine that compensates a run whose code has ended; None if there is nothing to undo."""
        if self.has_started or not self._registered:
            return None
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if isinstance(error, ContinueAsNew | None):
            return None
        self.has_started = True
        return self._undo(error)

    async def _undo(self, error: BaseException) -> None:
        execution = self._execution
        undos = [undo for undo in reversed(self._registered) if undo.step is not None]
        failed = step_failure(error)
        started = CompensationStarted(
            trigger_step=failed.step if isinstance(failed, StepFailed) else "",
            steps_to_undo=[undo.key for undo in undos],
            unknown=[undo.key for undo in reversed(self._registered) if undo.is_unknown],
        )
        execution.record("undo", started)
        done, failures = [], 0
        for key, step, args, kwargs, _ in undos:
            assert step is not None
            try:
                await execution.perform(step_call(execution, step, args, kwargs, key))
                done.append(key)
            except OutlastError as failure:
                failures += 1
                text = failure.error if isinstance(failure, StepFailed) else str(failure)
                failure_of = CompensationFailed(failed_step=key, error=text)
                execution.record(f"{UNDO}{key}", failure_of)
        if not failures:
            execution.record("undo", CompensationCompleted(steps_compensated=done))
        raise error
