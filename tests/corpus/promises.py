"""What an engine promises beyond what a store does, read off the log of its calls and the ledger of
what its steps did. Each function yields what was broken, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from outlast.model.commit import Commit, Committed
from outlast.model.event import Event, EventType
from outlast.model.payloads import (
    MapProgress,
    MapStarted,
    SignalReceived,
    StepStarted,
    TimerStarted,
    payload_of,
)
from outlast.testing.checker import Log
from outlast.testing.effects import Execution


def broken(
    log: Log, executions: Sequence[Execution], histories: dict[str, list[Event]]
) -> list[str]:
    """All promises that were not kept."""
    written = {event.id for history in histories.values() for event in history}
    durable = list(_durable(log, written))
    return [
        *_nothing_leaves_before_it_is_durable(durable, executions),
        *_no_item_runs_again(durable, executions),
        *_commits_say_what_they_build_on(log),
        *_signals_are_taken_with_their_event(log),
        *_timers_fire_on_time(histories),
    ]


def _durable(log: Log, written: set[str]) -> Iterator[tuple[int, Event]]:
    """Every event, with the tick at which some process knew that it was durable. If nobody was
    told, but it was written, somebody may have read it as soon as the call was made."""
    for op in log.ops:
        if isinstance(op.value, Commit):
            told = isinstance(op.result, Committed)
            for event in op.value.events:
                if told or event.id in written:
                    yield op.ended if told else op.begun, event


def _nothing_leaves_before_it_is_durable(
    durable: Sequence[tuple[int, Event]], executions: Sequence[Execution]
) -> Iterator[str]:
    """A body begins only when its intent, with the number of the attempt, is written."""
    known: dict[tuple[str, str, int], int] = {}
    windows: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for tick, event in durable:
        key = (event.run_id, event.step_name)
        match payload_of(event) if event.type in _INTENTS else None:
            case StepStarted(attempt=attempt):
                known[(*key, attempt)] = min(tick, known.get((*key, attempt), tick))
            case MapStarted(item_count=count):
                windows.setdefault(key, []).append((tick, count))
            case MapProgress(started=count) as progress:
                found = windows.setdefault(key, [])
                done = len(progress.completed) + len(progress.failed)
                if len(found) == 1 and count < found[0][1]:
                    # How far bodies may run ahead, before anything is reported, follows from the
                    # first report.
                    found[0] = (found[0][0], count - done)
                found.append((tick, count))
    for line in executions:
        name, _, index = line.key.rstrip("]").partition("[")
        if index and not line.key.startswith("undo/"):
            begun = any(
                tick < line.begun and int(index) < count
                for tick, count in windows.get((line.run_id, name), ())
            )
        else:
            begun = known.get((line.run_id, line.key, line.attempt), line.begun) < line.begun
        if not begun:
            yield f"attempt {line.attempt} of {line.key!r} began before its intent was durable"


_INTENTS = {EventType.STEP_STARTED, EventType.MAP_STARTED, EventType.MAP_PROGRESS}


def _no_item_runs_again(
    durable: Sequence[tuple[int, Event]], executions: Sequence[Execution]
) -> Iterator[str]:
    """What is true of steps is true of the items of a map: once recorded they never run again."""
    recorded: dict[tuple[str, str], int] = {}
    for tick, event in durable:
        if event.type == EventType.MAP_PROGRESS:
            payload = payload_of(event)
            assert isinstance(payload, MapProgress)
            for index in payload.completed:
                key = event.run_id, f"{event.step_name}[{index}]"
                recorded[key] = min(tick, recorded.get(key, tick))
    for line in executions:
        tick = recorded.get((line.run_id, line.key), line.begun)
        if tick < line.begun:
            yield f"item {line.key!r} began again after its result was recorded"


def _commits_say_what_they_build_on(log: Log) -> Iterator[str]:
    """Whoever advances a run names its claim, its life and the last event that it knows."""
    for op in log.ops:
        commit = op.value
        if not isinstance(commit, Commit) or commit.create is not None or commit.force:
            continue
        if commit.expected is None or commit.token is None or commit.uid is None:
            yield f"commit {commit.id} does not say what it builds on"


def _signals_are_taken_with_their_event(log: Log) -> Iterator[str]:
    """As many signals are received in a commit as items leave the inbox by it, or fewer."""
    for op in log.ops:
        if isinstance(op.value, Commit) and op.value.create is None:
            received = sum(
                isinstance(payload_of(event), SignalReceived) for event in op.value.events
            )
            if received > len(set(op.value.folds)):
                yield f"commit {op.value.id} receives {received} signals and takes fewer"


def _timers_fire_on_time(histories: dict[str, list[Event]]) -> Iterator[str]:
    """I15: a timer fires when it is due or later, and at most once."""
    for run_id, history in histories.items():
        due = {}
        for event in history:
            if event.type == EventType.TIMER_STARTED:
                payload = payload_of(event)
                assert isinstance(payload, TimerStarted)
                due[event.step_name] = payload.fire_at
            elif event.type == EventType.TIMER_FIRED:
                fire_at = due.pop(event.step_name, None)
                if fire_at is None:
                    yield f"timer {event.step_name!r} of {run_id!r} fired twice"
                elif event.timestamp < fire_at:
                    yield f"timer {event.step_name!r} of {run_id!r} fired too early"
