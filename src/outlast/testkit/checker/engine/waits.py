"""What waiting promises: I15 and, beyond what an inbox does, I16."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from outlast.model.payloads import (
    MessageRejected,
    OperationAbandoned,
    SignalReceived,
    SignalTimeoutEvent,
    SignalWaiting,
    StepFailedEvent,
    StepStarted,
    TimerFired,
    TimerStarted,
)
from outlast.model.run_contents import Item
from outlast.testkit.checker.evidence import Attempt, Case, Fate, Violation, position, readable


def nothing_is_early(case: Case) -> Iterator[Violation]:
    """I15: a timer, a timeout and a retry take effect once, and never before they are due."""
    for id in case.final.runs:
        due: dict[str, datetime | None] = {}
        waits: set[str] = set()
        for event, payload in case.typed_events(id):
            key = event.step_name
            match payload:
                case TimerStarted(fire_at=when):
                    due[key] = when
                    waits.add(key)
                case SignalWaiting(timeout_at=when):
                    due[key] = when
                    waits.add(key)
                case StepFailedEvent(will_retry=True, retry_at=when):
                    due[key] = when
                    continue
                case SignalReceived() | OperationAbandoned():
                    waits.discard(key)
                    continue
                case TimerFired() | SignalTimeoutEvent():
                    if key not in waits:
                        yield Violation(
                            "I15", id, f"{position(event)}: no operation waits for {key!r}"
                        )
                    waits.discard(key)
                case StepStarted():
                    pass
                case _:
                    continue
            if isinstance(payload, TimerFired | SignalTimeoutEvent | StepStarted):
                when = due.pop(key, None)
                if when is not None and event.timestamp < when:
                    late = when - event.timestamp
                    yield Violation("I15", id, f"{position(event)}: {key!r} came {late} too early")


def signals_are_taken_in_order(case: Case) -> Iterator[Violation]:
    """I16: a signal leaves the inbox in the commit that records it, as it was sent, in order."""
    for id in case.final.runs:
        if case.may_be_gone(id):
            continue
        items = {
            sent.receipt.number: sent.send.item
            for sent in case.sent_to(id)
            if sent.receipt is not None
        }
        last: dict[str, int] = {}
        for attempt in _in_sequence(case, id):
            yield from _as_sent(attempt, items)
            for number in attempt.commit.consumes:
                item = items.get(number)
                if item is not None and item.kind == "signal":
                    if number < last.get(item.name, 0):
                        message = f"signal {item.name!r} {number} was taken after a later one"
                        yield Violation("I16", id, message)
                    last[item.name] = number


def _in_sequence(case: Case, id: str) -> list[Attempt]:
    """The commits of a run that happened, in their order."""
    place = {event.id: event.sequence for event in case.final.runs[id].events}
    found = [
        (place.get(attempt.commit.events[0].id, 0), attempt)
        for attempt in case.attempts_at(id)
        if attempt.commit.events and (attempt.fate is Fate.OK or case.holds(attempt) is not None)
    ]
    # A commit that was sent again, because its answer was lost, happened once.
    once = {attempt.commit.events[0].id: (number, attempt) for number, attempt in found}
    return [attempt for _, attempt in sorted(once.values(), key=lambda one: one[0])]


def _as_sent(attempt: Attempt, items: dict[int, Item]) -> Iterator[Violation]:
    commit = attempt.commit
    consumed = [items[number] for number in commit.consumes if number in items]
    taken = [(item.name, bytes(item.data or b"")) for item in consumed if item.kind == "signal"]
    received = []
    for _, payload in readable(commit.events):
        if isinstance(payload, SignalReceived):
            received.append((payload.signal_name, bytes(payload.payload or b"")))
        elif isinstance(payload, MessageRejected) and payload.kind == "signal":
            received.append((payload.name, bytes(payload.value or b"")))
    # One whose receipt was lost may be among them: its content is not known.
    unknown = sum(number not in items for number in commit.consumes)
    if len(received) > len(taken) + unknown or any(one not in received for one in taken):
        message = f"commit {commit.id!r} takes {taken} and records {received}"
        yield Violation("I16", commit.run_id, message)
    for name in {name for name, _ in taken} if not unknown else ():
        if [one for one in taken if one[0] == name] != [one for one in received if one[0] == name]:
            message = f"commit {commit.id!r} takes {taken} and records {received}: another order"
            yield Violation("I16", commit.run_id, message)
