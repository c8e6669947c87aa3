"""What steps promise, if there is a ledger of what was done in the world: I8, I9."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.model.event import EventType
from outlast.testkit.checker.evidence import Case, Violation


def never_again_once_recorded(case: Case) -> Iterator[Violation]:
    """I8: after a step's completion was acknowledged, its body does not start again."""
    recorded: dict[tuple[str, str], int] = {}
    for attempt in case.attempts:
        if attempt.committed is None or case.may_be_gone(attempt.commit.run_id):
            continue
        for event in attempt.commit.events:
            if event.type == EventType.STEP_COMPLETED:
                key = (event.run_id, event.step_name)
                recorded[key] = min(attempt.acked, recorded.get(key, attempt.acked))
    for effect in case.evidence.effects:
        if effect.stale:
            continue
        acked = recorded.get((effect.run_id, effect.step))
        if acked is not None and effect.begun > acked:
            message = f"step {effect.step!r} began again after its result was recorded"
            yield Violation("I8", effect.run_id, message)


def at_least_once(case: Case) -> Iterator[Violation]:
    """I9: what is recorded as completed was done."""
    if not case.evidence.effects:
        return
    done = {
        (one.run_id, one.step)
        for one in case.evidence.effects
        if one.ended is not None and not one.stale
    }
    for id, dumped in case.final.runs.items():
        for event in dumped.events:
            if event.type == EventType.STEP_COMPLETED and (id, event.step_name) not in done:
                yield Violation("I9", id, f"step {event.step_name!r} is completed and never ran")
