"""What an inbox promises: I16."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.testkit.checker.evidence import Attempt, Case, Fate, Sent, Violation, ends
from outlast.testkit.dump import RunDump

LOST = "lost"
"""The kind of item by which an owner that has lost its lease reports what it did not end."""


def signals_once(case: Case) -> Iterator[Violation]:
    """I16: an acked item is consumed once or still waits, in order; an ended run takes none."""
    for id, dumped in case.final.runs.items():
        if case.may_be_gone(id):
            continue
        mine = case.sent_to(id)
        yield from _numbered_once(id, mine)
        yield from _in_order(id, mine)
        yield from _consumed_or_pending(case, dumped, mine)
        yield from _not_after_the_end(case, id, mine)


def _numbered_once(id: str, mine: list[Sent]) -> Iterator[Violation]:
    numbers: dict[str, int] = {}
    fresh: set[str] = set()
    for sent in mine:
        if sent.receipt is None:
            continue
        item = sent.send.item.id
        if numbers.setdefault(item, sent.receipt.number) != sent.receipt.number:
            yield Violation("I16", id, f"item {item!r} was taken under two numbers")
        if not sent.receipt.again:
            if item in fresh:
                yield Violation("I16", id, f"item {item!r} was taken twice")
            fresh.add(item)
    taken = sorted(numbers.values())
    if len(set(taken)) != len(taken):
        yield Violation("I16", id, f"two items share a number: {taken}")


def _in_order(id: str, mine: list[Sent]) -> Iterator[Violation]:
    fresh = [sent for sent in mine if sent.receipt is not None and not sent.receipt.again]
    for first in fresh:
        for second in fresh:
            if first.ended < second.begun and _number(first) > _number(second):
                message = f"{first.send.item.id!r} was sent before {second.send.item.id!r}"
                yield Violation("I16", id, f"{message} and stands behind it")


def _consumed_or_pending(case: Case, dumped: RunDump, mine: list[Sent]) -> Iterator[Violation]:
    id = dumped.run.id
    waiting = [item.number for item in dumped.inbox]
    sure, maybe = _consumed(case, id)
    for number in sorted(set(sure)):
        if sure.count(number) > 1:
            yield Violation("I16", id, f"item {number} was consumed {sure.count(number)} times")
        if number in waiting:
            yield Violation("I16", id, f"item {number} was consumed and still waits")
    for sent in mine if not _unseen(case, dumped) else ():
        number = _number(sent)
        if sent.send.item.kind == LOST and not case.evidence.complete:
            continue  # it may be consumed without an event, by an owner that died before it could say so
        if sent.receipt is not None and number not in waiting and number not in sure + maybe:
            yield Violation("I16", id, f"item {sent.send.item.id!r} was acked and is lost")
    if waiting != sorted(set(waiting)):
        yield Violation("I16", id, f"its inbox is numbered {waiting}")


def _unseen(case: Case, dumped: RunDump) -> bool:
    """Whether a run has events of an owner's commit that is not in the evidence, because that one died
    before it could say so: it may have consumed anything."""
    if case.evidence.complete:
        return False
    seen = {event.id for one in case.attempts_at(dumped.run.id) for event in one.commit.events}
    return any(event.token and event.id not in seen for event in dumped.events)


def _not_after_the_end(case: Case, id: str, mine: list[Sent]) -> Iterator[Violation]:
    acked = [
        attempt.acked
        for attempt in case.attempts_at(id)
        if attempt.committed is not None and ends(attempt.commit)
    ]
    for sent in mine:
        if (
            sent.receipt is not None
            and not sent.receipt.again
            and acked
            and sent.begun > min(acked)
        ):
            yield Violation("I16", id, f"item {sent.send.item.id!r} was taken after the end")


def _consumed(case: Case, id: str) -> tuple[list[int], list[int]]:
    """The numbers that were consumed, and those that may have been."""
    sure: list[int] = []
    maybe: list[int] = []
    written: set[tuple[str, ...]] = set()
    for attempt in case.attempts_at(id):
        commit = attempt.commit
        if commit.consumes:
            happened = attempt.fate is Fate.OK or case.holds(attempt) is not None
            if happened:
                # What was refused under a claim may be written under the next one of its process: the
                # same events, once.
                same = tuple(event.id for event in commit.events) or (commit.id,)
                if same in written:
                    continue
                written.add(same)
            if happened or _undecided(attempt):
                (sure if happened else maybe).extend(set(commit.consumes))
    return sure, maybe


def _undecided(attempt: Attempt) -> bool:
    return attempt.fate is Fate.UNKNOWN and not attempt.commit.events


def _number(sent: Sent) -> int:
    return 0 if sent.receipt is None else sent.receipt.number
