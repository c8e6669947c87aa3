"""History reset: starts a new life from a part of a history, for retry and fork. Pure functions.

A replay requests everything again in the same order, so the part that is kept is always the beginning of a history;
only the events of the failure itself are taken out of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.step import StepReport, stop_failure
from outlast.model.commit import Start
from outlast.model.event import Event, EventType, payload_of, to_event
from outlast.model.json import to_json
from outlast.model.payloads import (
    NULL,
    ChildSpawned,
    CompensationStarted,
    MapProgress,
    OperationAbandoned,
    StepCompleted,
    StepFailedEvent,
    StepStarted,
    WorkflowStarted,
)
from outlast.model.run import Run
from outlast.model.times import NOW

_ENDINGS = frozenset(
    {
        EventType.WORKFLOW_COMPLETED,
        EventType.WORKFLOW_FAILED,
        EventType.WORKFLOW_CANCELLED,
        EventType.WORKFLOW_MOVED,
    }
)
_STARTED = frozenset({EventType.STEP_STARTED, EventType.MAP_STARTED})
_DONE = frozenset({EventType.STEP_COMPLETED, EventType.MAP_COMPLETED})
_CHILD_OVER = frozenset(
    {EventType.CHILD_COMPLETED, EventType.CHILD_FAILED, EventType.OPERATION_ABANDONED}
)


def before_step(history: Sequence[Event], step: str | None) -> list[Event]:
    """The part of a history before `step` was requested, without the end of the run. Requests of the same turn are cut
    too, because a replay makes all of them again."""
    kept: list[Event] = []
    for event in history:
        if event.type in _ENDINGS or event.type == EventType.COMPENSATION_STARTED:
            break
        if event.type == EventType.OPERATION_ABANDONED and _is_closing(event):
            break
        if step is not None and event.step_name == step:
            break
        kept.append(event)
    return kept


def before_failure(history: Sequence[Event], failed: str | None) -> list[Event]:
    """The part of a history before the step, map, child or scope `failed` ended the run. A compensated run starts
    before the first step that was undone."""
    undone = _undone(history)
    if undone:
        first = next(event.step_name for event in history if event.step_name in undone)
        return before_step(history, first)
    kept = before_step(history, None)
    if failed is None:
        return kept
    position = _failure_of(kept, failed)
    if position is not None:
        name = kept[position].step_name
        return [
            fresh
            for earlier in kept[:position]
            if (fresh := _without_attempts(earlier, name)) is not None
        ]
    position = _failure_of_code(kept, failed)
    return before_step(kept, failed) if position is None else kept[:position]


def outcomes_after(
    kept: Sequence[Event], cut: Sequence[Event], failed: str | None, *, life: str
) -> list[tuple[str, StepReport]]:
    """The outcomes, after the cut, of the steps and maps that are open there, by key, for the `life` that starts there;
    without that of `failed`. Also the results of steps that other branches requested after the cut."""
    open = {event.step_name for event in kept if event.type in _STARTED} - {
        event.step_name
        for event in kept
        if event.type in _DONE or _fails(event) or _is_given_up(event)
    }
    open.discard(failed or "")
    inputs = _asked_beside(kept, cut, failed)
    done: list[tuple[str, StepReport]] = []
    ended: dict[str, StepReport] = {}
    for event in cut:
        key = event.step_name
        if key not in open and key not in inputs:
            continue
        match payload_of(event):
            case StepCompleted(duration_ns=duration):
                ended.pop(key, None)
                report = StepReport(
                    output=event.output or NULL,
                    duration_ns=duration,
                    life=life,
                    input=inputs.get(key),
                )
                done.append((key, report))
            case StepFailedEvent() as failure if key in open:
                ended[key] = StepReport(failed=failure, life=life)
            case StepStarted():
                ended.pop(key, None)
            case MapProgress(completed=items, results=results) if items:
                progress = MapProgress(completed=items, results=results)
                done.append((key, StepReport(items=progress, life=life)))
            case OperationAbandoned(awaited=False) if key in open and key not in ended:
                # Cut off by the code: that is no interruption, either.
                cut_off = StepReport(
                    failed=stop_failure(1, event.timestamp), items=MapProgress(), life=life
                )
                ended[key] = cut_off
    reported = {key for key, _ in done}
    return [*done, *((key, report) for key, report in ended.items() if key not in reported)]


def asked_without_result(
    kept: Sequence[Event], cut: Sequence[Event], failed: str | None, *, life: str
) -> dict[str, tuple[str, Raw]]:
    """The steps that other branches requested in `life` after the cut and that have no result, with their inputs: their
    effects are unknown, so the same calls keep their idempotency keys."""
    done = {event.step_name for event in cut if event.type in _DONE}
    inputs = _asked_beside(kept, cut, failed)
    return {key: (life, input) for key, input in inputs.items() if key not in done}


def _asked_beside(
    kept: Sequence[Event], cut: Sequence[Event], failed: str | None
) -> dict[str, Raw]:
    """The inputs of the steps that were requested after the cut in branches that had started before, in which nothing
    failed or was abandoned. Empty if steps were undone: later results may depend on them."""
    if failed is None or _undone(cut):
        return {}
    started = {_branch(event.step_name, failed) for event in kept}
    inputs: dict[str, Raw] = {}
    for event in cut:
        branch = _branch(event.step_name, failed)
        if event.type == EventType.OPERATION_ABANDONED:
            started.discard(branch)
        elif event.type == EventType.STEP_STARTED and branch and branch in started:
            payload = payload_of(event)
            if isinstance(payload, StepStarted) and payload.attempt == 1:
                inputs[event.step_name] = payload.input or Raw(b"{}")
    return inputs


def _branch(key: str, failed: str) -> str:
    """The outermost scope of `key` that is not around `failed` as well; empty if there is none."""
    scopes = key.split("/")[:-1]
    around = failed.split("/")[:-1]
    for depth, name in enumerate(scopes):
        if depth >= len(around) or around[depth] != name:
            return "/".join(scopes[: depth + 1])
    return ""


def failed_within(history: Sequence[Event], failed: str | None) -> str | None:
    """The key of what made `failed` fail: itself or, if it is a scope, a step or a map inside it. That has ended, so a
    retry starts it without counting an interruption."""
    kept = before_step(history, None)
    position = None if failed is None else _failure_of(kept, failed)
    return failed if position is None else kept[position].step_name


def _failure_of(kept: Sequence[Event], failed: str) -> int | None:
    """The position of the event that made `failed` fail: of itself, or inside that scope."""
    inside = f"{failed}/" if _opened_by(kept, failed) == EventType.SCOPE_STARTED else None
    for position in reversed(range(len(kept))):
        event = kept[position]
        if event.step_name == failed or (inside and event.step_name.startswith(inside)):
            if event.type == EventType.CHILD_FAILED or _fails(event):
                return position
    return None


def _failure_of_code(kept: Sequence[Event], failed: str) -> int | None:
    """The position at which the code of the scope `failed` raised, or of an inner scope whose error it passed on: what
    they did before is kept."""
    found = None
    for position in reversed(range(len(kept))):
        event = kept[position]
        if event.type == EventType.SCOPE_FAILED and event.step_name == failed:
            found, failed = position, f"{failed}/"
        elif found is not None:
            if event.type != EventType.SCOPE_FAILED or not event.step_name.startswith(failed):
                break
            found = position
    return found


def seeded(
    events: Sequence[Event],
    run: Run,
    input: Raw | None,
    *,
    children: Mapping[str, str],
    handed_on: WorkflowStarted | None = None,
) -> list[Event]:
    """The same events as the start of another run, with the random seed of `run`. `children` are the ids of the
    children that are started again, by key. With `handed_on` it is the next life of the same run: steps that were
    requested in an earlier life keep their idempotency keys, because their effects are unknown."""
    started = payload_of(events[0])
    assert isinstance(started, WorkflowStarted)
    fresh = msgspec.structs.replace(
        handed_on or started,
        seed=started.seed or run.uid,
        input=input or started.input,
        lineage=[],
        **(
            {}
            if handed_on
            else {"later": False, "parent_uid": "", "answers": [], "adopts": {}, "asked": {}}
        ),
    )
    if handed_on is not None:
        lineage = [(uid, _kept_until(events, last)) for uid, last in started.lineage]
        lineage.append((run.uid, len(events)))
        fresh = msgspec.structs.replace(fresh, lineage=lineage)
    first = msgspec.structs.replace(events[0], data=Raw(to_json(fresh)))
    return [first, *(_renamed(event, children) for event in events[1:])]


def _renamed(event: Event, children: Mapping[str, str]) -> Event:
    if event.type != EventType.CHILD_SPAWNED or event.step_name not in children:
        return event
    spawned = payload_of(event)
    assert isinstance(spawned, ChildSpawned)
    spawned = msgspec.structs.replace(spawned, child_run_id=children[event.step_name])
    return msgspec.structs.replace(event, data=Raw(to_json(spawned)))


def _kept_until(events: Sequence[Event], last: int) -> int:
    """The sequence of the event `last`, or of the one before it, when only `events` of its history are kept: each event
    that is left out moves the later ones."""
    return sum(event.sequence <= last for event in events)


def open_children(history: Sequence[Event]) -> dict[str, ChildSpawned]:
    """The children that a history waits for, by key."""
    found = spawned_children(history)
    for event in history:
        if event.type in _CHILD_OVER:
            found.pop(event.step_name, None)
    return found


def spawned_children(history: Sequence[Event]) -> dict[str, ChildSpawned]:
    """The children that a history has requested, by key."""
    found: dict[str, ChildSpawned] = {}
    for event in history:
        if event.type == EventType.CHILD_SPAWNED:
            payload = payload_of(event)
            assert isinstance(payload, ChildSpawned)
            found[event.step_name] = payload
    return found


def restarted(
    child_run_id: str,
    spawned: ChildSpawned,
    workflow: WorkflowDefinition | None,
    parent: Run,
) -> Start:
    """The start of a child that a reset history of `parent` waits for: nothing else starts it."""
    run = Run(
        id=child_run_id,
        workflow=spawned.workflow_name,
        version="" if workflow is None else workflow.version,
        definition="" if workflow is None else workflow.hash,
        input=spawned.input,
        parent=parent.id,
        runnable_at=NOW,
    )
    started = WorkflowStarted(
        workflow_name=run.workflow,
        version=run.version,
        input=spawned.input,
        place=spawned.place,
        parent_uid=parent.uid,
    )
    return Start(run, (to_event(started, run_id=run.id),))


def _undone(history: Sequence[Event]) -> set[str]:
    for event in history:
        if event.type == EventType.COMPENSATION_STARTED:
            payload = payload_of(event)
            assert isinstance(payload, CompensationStarted)
            # The items of a map are undone one by one, but start together.
            return {key.partition("[")[0] for key in payload.steps_to_undo}
    return set()


def _is_closing(event: Event) -> bool:
    payload = payload_of(event)
    return isinstance(payload, OperationAbandoned) and payload.closing


def _is_given_up(event: Event) -> bool:
    """Whether the event abandons an operation that has no outcome. One that is awaited runs to its end."""
    if event.type != EventType.OPERATION_ABANDONED:
        return False
    payload = payload_of(event)
    return isinstance(payload, OperationAbandoned) and not payload.awaited


def _opened_by(history: Sequence[Event], key: str) -> str | None:
    return next((event.type for event in history if event.step_name == key), None)


def _fails(event: Event) -> bool:
    if event.type == EventType.MAP_FAILED:
        return True
    payload = payload_of(event) if event.type == EventType.STEP_FAILED else None
    return isinstance(payload, StepFailedEvent) and not payload.will_retry


def _without_attempts(event: Event, failed: str) -> Event | None:
    """An event as if what failed had just been requested: without its attempts."""
    if event.step_name != failed:
        return event
    match payload_of(event):
        case StepStarted(attempt=attempt):
            return event if attempt == 1 else None
        case MapProgress(failed=items) as progress if items:
            data = Raw(to_json(msgspec.structs.replace(progress, failed=[])))
            return msgspec.structs.replace(event, data=data)
    attempts = (EventType.STEP_FAILED, EventType.STEP_PROGRESS, EventType.STEP_LOST)
    return None if event.type in attempts else event
