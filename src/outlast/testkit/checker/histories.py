"""What a history promises: I1 to I4, I7, I18."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.model.event import Event, EventType
from outlast.testkit.checker.evidence import Case, Fate, Violation, ends, position

ENDINGS = {
    EventType.WORKFLOW_COMPLETED,
    EventType.WORKFLOW_FAILED,
    EventType.WORKFLOW_CANCELLED,
    EventType.WORKFLOW_MOVED,
}


def gapless(case: Case) -> Iterator[Violation]:
    """I1: the events of a run are exactly 1, 2, 3 …, each id once."""
    for dump in case.evidence.dumps:
        for id, dumped in dump.runs.items():
            sequences = [event.sequence for event in dumped.events]
            if sequences != list(range(1, len(sequences) + 1)):
                yield Violation("I1", id, f"its events are numbered {sequences}")
            ids = [event.id for event in dumped.events]
            for doubled in sorted({one for one in ids if ids.count(one) > 1}):
                yield Violation(
                    "I1", id, f"event {doubled!r} is recorded {ids.count(doubled)} times"
                )


def immutable_prefix(case: Case) -> Iterator[Violation]:
    """I2: no event is changed or removed while its run lives."""
    for before, after in case.lives():
        for number, event in enumerate(before.events):
            now = after.events[number] if number < len(after.events) else None
            if now != event:
                change = "is gone" if now is None else f"became {now}"
                yield Violation("I2", before.run.id, f"{position(event)} {change}")


def no_acked_loss(case: Case) -> Iterator[Violation]:
    """I3: what was acknowledged is there, where the answer said it would be."""
    for attempt in case.attempts:
        commit, committed = attempt.commit, attempt.committed
        if committed is None:
            continue
        dumped = case.life(commit.run_id, committed.uid)
        if dumped is None:
            if not case.may_be_gone(commit.run_id):
                yield Violation(
                    "I3", commit.run_id, f"commit {commit.id!r} was acked; no such life"
                )
            continue
        recorded = {event.id: event.sequence for event in dumped.events}
        first = committed.sequence - len(commit.events) + 1
        for sequence, event in enumerate(commit.events, first):
            if recorded.get(event.id) != sequence:
                where = recorded.get(event.id, "nowhere")
                message = f"event {event.id!r} was acked at {sequence} and is at {where}"
                yield Violation("I3", commit.run_id, message)
        lines = {entry.id for entry in dumped.entries}
        for entry in commit.entries:
            if entry.id not in lines:
                yield Violation(
                    "I3", commit.run_id, f"entry {entry.id!r} was acked and is not there"
                )
        for start in commit.starts:
            if start.run.id not in case.final.runs and not case.may_be_gone(start.run.id):
                yield Violation("I3", start.run.id, "a child that was acked and is not there")


def no_phantoms(case: Case) -> Iterator[Violation]:
    """I4: every event and item was sent by a call that was not refused, and is unchanged."""
    if not case.evidence.complete:
        return
    events: dict[tuple[str, str], list[tuple[Fate, Event]]] = {}
    items: dict[tuple[str, str], list[Fate]] = {}
    for attempt in case.attempts:
        fate = attempt.fate
        asked = [*attempt.commit.events]
        asked += [event for start in attempt.commit.starts for event in start.events]
        for event in asked:
            events.setdefault((event.run_id, event.id), []).append((fate, event))
        for send in attempt.commit.sends:
            items.setdefault((send.run_id, send.item.id), []).append(fate)
    for sent in case.sent:
        items.setdefault((sent.send.run_id, sent.send.item.id), []).append(sent.fate)
    for id, dumped in case.final.runs.items():
        for event in dumped.events:
            sources = [
                one for fate, one in events.get((id, event.id), []) if fate is not Fate.FAILED
            ]
            if not sources:
                yield Violation("I4", id, f"{position(event)} was written by no recorded commit")
            elif not any(_says_the_same(event, source) for source in sources):
                yield Violation("I4", id, f"{position(event)} is not what was sent: {event}")
        for item in dumped.inbox:
            if all(fate is Fate.FAILED for fate in items.get((id, item.id), [])):
                yield Violation("I4", id, f"item {item.id!r} was sent by no recorded call")


def one_completion_per_step(case: Case) -> Iterator[Violation]:
    """I7: the result of a step is recorded once."""
    for id, dumped in case.final.runs.items():
        seen: set[str] = set()
        for event in dumped.events:
            if event.type == EventType.STEP_COMPLETED and event.step_name:
                if event.step_name in seen:
                    yield Violation("I7", id, f"step {event.step_name!r} is completed twice")
                seen.add(event.step_name)


def terminal_is_final(case: Case) -> Iterator[Violation]:
    """I18: a run ends once, no event follows, and no commit reopens it."""
    for id, dumped in case.final.runs.items():
        endings = [event for event in dumped.events if event.type in ENDINGS]
        if len(endings) > 1:
            yield Violation("I18", id, f"it has {len(endings)} endings")
        elif endings and endings[0] is not dumped.events[-1]:
            yield Violation("I18", id, f"there is history after {position(endings[0])}")
    for before, after in case.lives():
        if before.run.status.terminal and (
            after.run.status != before.run.status or len(after.events) != len(before.events)
        ):
            yield Violation("I18", before.run.id, f"was {before.run.status} and went on")
    yield from _written_after_the_end(case)


def _written_after_the_end(case: Case) -> Iterator[Violation]:
    ended: dict[tuple[str, str | None], int] = {}
    for attempt in case.attempts:
        if attempt.committed is not None and ends(attempt.commit):
            key = (attempt.commit.run_id, attempt.uid)
            ended[key] = min(attempt.acked, ended.get(key, attempt.acked))
    for attempt in case.attempts:
        end = ended.get((attempt.commit.run_id, attempt.uid))
        if end is not None and attempt.fresh and attempt.commit.reopens and attempt.begun > end:
            message = f"commit {attempt.commit.id!r} was accepted after the end"
            yield Violation("I18", attempt.commit.run_id, message)


def _says_the_same(event: Event, sent: Event) -> bool:
    names = ("type", "data", "output", "step_name", "version", "metadata")
    return all(getattr(event, name) == getattr(sent, name) for name in names)
