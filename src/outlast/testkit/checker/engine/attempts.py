"""What attempts promise: I5, I8 and I9 for the items of maps, I10."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.engine.definitions.retry import MAX_INTERRUPTIONS, MAX_LOST
from outlast.engine.operations.step import is_crash_cause
from outlast.model.commit import Commit
from outlast.model.event import Event
from outlast.model.payloads import (
    MapProgress,
    MapStarted,
    OperationAbandoned,
    Payload,
    StepCompleted,
    StepFailedEvent,
    StepLost,
    StepStarted,
)
from outlast.testkit.checker.evidence import Case, Effect, Violation, readable


def commits_name_their_claim(case: Case) -> Iterator[Violation]:
    """I5: a commit that advances a run names the claim, the life and the last event that its owner knows."""
    for op in case.evidence.ops:
        commit = op.value
        if not isinstance(commit, Commit) or commit.create is not None or commit.force:
            continue
        if commit.expected is None or commit.token is None or commit.uid is None:
            message = f"commit {commit.id!r} does not say what it builds on"
            yield Violation("I5", commit.run_id, message)


def no_item_runs_again(case: Case) -> Iterator[Violation]:
    """I8: what is true of steps is true of items: once recorded they never run again."""
    recorded: dict[tuple[str, str], int] = {}
    for tick, event, payload in _durable(case):
        if isinstance(payload, MapProgress):
            for index in payload.completed:
                key = event.run_id, f"{event.step_name}[{index}]"
                recorded[key] = min(tick, recorded.get(key, tick))
    for effect in case.evidence.effects:
        tick = recorded.get((effect.run_id, effect.step), effect.begun)
        if tick < effect.begun and not effect.stale and not case.may_be_gone(effect.run_id):
            message = f"item {effect.step!r} began again after its result was recorded"
            yield Violation("I8", effect.run_id, message)


def items_run_at_least_once(case: Case) -> Iterator[Violation]:
    """I9: an item that is recorded as done was done."""
    done = {(one.run_id, one.step) for one in case.evidence.effects if one.ended is not None}
    for id in case.final.runs if done else ():
        for event, payload in case.typed_events(id):
            for index in payload.completed if isinstance(payload, MapProgress) else ():
                if (id, key := f"{event.step_name}[{index}]") not in done:
                    if not case.may_be_gone(id) and not _is_copied(case, id):
                        yield Violation("I9", id, f"item {key!r} is completed and never ran")


def attempts_are_counted_first(case: Case) -> Iterator[Violation]:
    """I10: an attempt is recorded before it runs, runs once, and there are not too many."""
    yield from _begun_too_soon(case)
    ran: set[tuple[str, str, str, int]] = set()
    for effect in case.evidence.effects:
        one = (effect.run_id, effect.uid, effect.step, effect.attempt)
        if one in ran and effect.attempt and not _item(effect):
            message = f"attempt {effect.attempt} of step {effect.step!r} ran twice"
            yield Violation("I10", effect.run_id, message)
        ran.add(one)
    for id in case.final.runs:
        yield from _miscounted(id, case)


def _begun_too_soon(case: Case) -> Iterator[Violation]:
    started: dict[tuple[str, str, int], int] = {}
    windows: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for tick, event, payload in _durable(case):
        key = (event.run_id, event.step_name)
        match payload:
            case StepStarted(attempt=attempt):
                started[(*key, attempt)] = min(tick, started.get((*key, attempt), tick))
            case MapStarted(item_count=count):
                windows.setdefault(key, []).append((tick, count))
            case MapProgress(started=count):
                known = windows.setdefault(key, [])
                done = len(payload.completed) + len(payload.failed)
                if len(known) == 1 and count < known[0][1]:
                    # How far bodies may run ahead before anything is reported follows from the
                    # first report.
                    known[0] = (known[0][0], count - done)
                known.append((tick, count))
    for effect in case.evidence.effects:
        item = _item(effect)
        if item is not None:
            name, index = item
            ticks = [
                tick for tick, count in windows.get((effect.run_id, name), ()) if index < count
            ]
        elif effect.attempt:
            one = (effect.run_id, effect.step, effect.attempt)
            ticks = [started[one]] if one in started else []
        else:
            continue
        what = f"attempt {effect.attempt} of {effect.step!r}"
        if not ticks:
            yield Violation("I10", effect.run_id, f"{what} ran, and its start is recorded nowhere")
        elif min(ticks) >= effect.begun:
            yield Violation("I10", effect.run_id, f"{what} began before its intent was durable")


def _miscounted(id: str, case: Case) -> Iterator[Violation]:
    starts: dict[str, int] = {}
    failures: dict[str, int] = {}
    losses: dict[str, int] = {}
    alone: dict[str, bool] = {}
    over: set[str] = set()
    for event, payload in case.typed_events(id):
        key = event.step_name
        match payload:
            case StepStarted(attempt=attempt, alone=is_alone):
                if attempt != starts.get(key, 0) + 1:
                    message = f"attempt {attempt} of {key!r} follows {starts.get(key, 0)}"
                    yield Violation("I10", id, message)
                if key in over:
                    yield Violation("I10", id, f"step {key!r} is over and was started again")
                starts[key] = attempt
                forgiven = failures.get(key, 0) + min(losses.get(key, 0), MAX_LOST)
                if is_crash_cause(attempt - forgiven - 1, alone=alone.get(key, False)):
                    message = f"step {key!r} was cut off {MAX_INTERRUPTIONS} times and goes on"
                    yield Violation("I10", id, message)
                alone[key] = is_alone
            case StepFailedEvent(will_retry=True):
                failures[key] = failures.get(key, 0) + 1
                alone[key] = False  # that attempt was not cut off
            case StepLost(attempt=attempt):
                losses[key] = losses.get(key, 0) + 1
                if attempt == starts.get(key) and losses[key] <= MAX_LOST:
                    alone[key] = False
            case StepFailedEvent() | StepCompleted() | OperationAbandoned(awaited=False):
                over.add(key)


def _durable(case: Case) -> Iterator[tuple[int, Event, Payload]]:
    for tick, event in case.durable:
        for _, payload in readable([event]):
            yield tick, event, payload


def _item(effect: Effect) -> tuple[str, int] | None:
    """The map and the index, if it is an item that ran."""
    name, _, index = effect.step.rstrip("]").rpartition("[")
    if not effect.step.endswith("]") or effect.step.startswith("undo/") or not index.isdigit():
        return None
    return name, int(index)


def _is_copied(case: Case, id: str) -> bool:
    """Whether a run began with the history of another one, which did what it says."""
    return any(
        attempt.commit.create is not None and len(attempt.commit.events) > 1
        for attempt in case.attempts_at(id)
        if attempt.commit.hold is None
    )
