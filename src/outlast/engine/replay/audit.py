"""Audit: the entries and activities of a run, computed from its history.

Nothing here is stored: they are a view of the events and cannot disagree with them. Only engines of your own store
rows for them.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Raw

from outlast.model.event import Event, EventType, payload_of
from outlast.model.payloads import (
    ChildCompleted,
    ChildFailedEvent,
    ChildSpawned,
    HaltStarted,
    SignalReceived,
    StepCompleted,
    StepFailedEvent,
    StepStarted,
)
from outlast.model.run import Status
from outlast.model.run_contents import Activity, Entry

_AUDITED = frozenset(
    {
        EventType.STEP_STARTED,
        EventType.STEP_COMPLETED,
        EventType.STEP_FAILED,
        EventType.SIGNAL_RECEIVED,
        EventType.HALT_STARTED,
        EventType.CHILD_SPAWNED,
        EventType.CHILD_COMPLETED,
        EventType.CHILD_FAILED,
    }
)


def entries_of(history: Iterable[Event]) -> list[Entry]:
    """One entry for each attempt that ended, signal received, halt and child, in the order of history."""
    inputs: dict[str, Raw | None] = {}
    entries = []
    for event in history:
        if event.type not in _AUDITED:
            continue
        key = event.step_name
        match payload_of(event):
            case StepStarted(input=input) if input is not None:
                inputs[key] = input
            case ChildSpawned(input=input):
                inputs[key] = input
            case StepCompleted(duration_ns=duration):
                line = _entry(event, "step", "completed", input=inputs.get(key))
                entries.append(
                    msgspec.structs.replace(
                        line, duration_ms=duration // 1_000_000, output=event.output
                    )
                )
            case StepFailedEvent(error=error):
                line = _entry(event, "step", "failed", input=inputs.get(key))
                entries.append(msgspec.structs.replace(line, error=error))
            case SignalReceived(payload=data):
                entries.append(_entry(event, "signal", "completed", input=data))
            case HaltStarted(data=data):
                entries.append(_entry(event, "halt", "halted", input=data))
            case ChildCompleted(output=output):
                line = _entry(event, "child", "completed", input=inputs.get(key))
                entries.append(msgspec.structs.replace(line, output=output))
            case ChildFailedEvent(error=error):
                line = _entry(event, "child", "failed", input=inputs.get(key))
                entries.append(msgspec.structs.replace(line, error=error))
    return entries


def activities_of(history: Iterable[Event]) -> list[Activity]:
    """The state of each step, in the order in which they were first requested."""
    states: dict[str, Activity] = {}
    for event in history:
        if event.type not in _AUDITED:
            continue
        key = event.step_name
        state = states.get(key)
        match payload_of(event):
            case StepStarted(attempt=attempt, input=input):
                if state is None:
                    name = key.rpartition("/")[2].partition("#")[0]
                    state = Activity(
                        id=f"{event.run_id}/{key}", run_id=event.run_id, name=name, input=input
                    )
                states[key] = msgspec.structs.replace(
                    state,
                    status=Status.RUNNING,
                    attempt=attempt,
                    error=None,
                    started_at=state.started_at or event.timestamp,
                )
            case StepCompleted() if state is not None:
                states[key] = msgspec.structs.replace(
                    state,
                    status=Status.COMPLETED,
                    output=event.output,
                    ended_at=event.timestamp,
                )
            case StepFailedEvent(error=error, will_retry=will_retry) if state is not None:
                states[key] = msgspec.structs.replace(
                    state,
                    status=Status.WAITING if will_retry else Status.FAILED,
                    error=error,
                    ended_at=None if will_retry else event.timestamp,
                )
    return list(states.values())


def _entry(event: Event, kind: str, action: str, *, input: Raw | None) -> Entry:
    return Entry(
        id=event.id,
        run_id=event.run_id,
        step_id=event.step_name,
        step_type=kind,
        action=action,
        input=input,
        timestamp=event.timestamp,
    )
