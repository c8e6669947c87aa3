"""What a transition, a record and a deletion promise: I12, I13, I25."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from outlast.model.commit import Commit, Committed
from outlast.model.ids import SEPARATOR, root_of
from outlast.testkit.checker.evidence import Attempt, Case, Fate, Op, Violation
from outlast.testkit.dump import Dump, RunDump


def all_or_nothing(case: Case) -> Iterator[Violation]:
    """I12: the parts of one commit appear together or not at all."""
    for attempt in case.attempts:
        dumped = case.life(attempt.commit.run_id, attempt.uid)
        if dumped is None or attempt.fate is Fate.FAILED:
            continue
        recorded = [event.id for event in dumped.events]
        there = [event.id for event in attempt.commit.events if event.id in recorded]
        if there and len(there) < len(attempt.commit.events):
            message = f"of commit {attempt.commit.id!r} only {there} are there"
            yield Violation("I12", attempt.commit.run_id, message)
        elif there and _starts_apart(recorded, there):
            message = f"others stand between the events of commit {attempt.commit.id!r}"
            yield Violation("I12", attempt.commit.run_id, message)
        if there or attempt.fate is Fate.OK:
            yield from _missing_parts(case, dumped, attempt.commit)
        elif attempt.commit.events:
            for entry in attempt.commit.entries:
                if entry.id in {line.id for line in dumped.entries}:
                    message = f"entry {entry.id!r} is there without the events of its commit"
                    yield Violation("I12", attempt.commit.run_id, message)
    yield from _half_batches(case)


def _missing_parts(case: Case, dumped: RunDump, commit: Commit) -> Iterator[Violation]:
    missing: list[str] = []
    lines = {entry.id for entry in dumped.entries}
    missing += [f"entry {entry.id!r}" for entry in commit.entries if entry.id not in lines]
    waiting = {item.number for item in dumped.inbox}
    missing += [f"item {number}" for number in commit.consumes if number in waiting]
    if dumped.run.ended_at is None:
        timers = {timer.id: timer for timer in dumped.timers}
        missing += [f"timer {timer.id!r}" for timer in commit.timers if timer.id not in timers]
        missing += [
            f"the firing of timer {id!r}"
            for id in commit.fired
            if id in timers and not timers[id].fired
        ]
    missing += [
        f"child {start.run.id!r}"
        for start in commit.starts
        if start.run.id not in case.final.runs and not case.may_be_gone(start.run.id)
    ]
    for part in missing:
        yield Violation("I12", commit.run_id, f"commit {commit.id!r} happened without {part}")


def _half_batches(case: Case) -> Iterator[Violation]:
    """An atomic batch is accepted as a whole or not at all."""
    batches: dict[tuple[str, int], list[Op]] = {}
    for op in case.evidence.ops:
        if op.atomic and isinstance(op.value, Commit):
            batches.setdefault((op.client, op.begun), []).append(op)
    for ops in batches.values():
        fresh = [op for op in ops if isinstance(op.result, Committed) and not op.result.again]
        refused = [op for op in ops if op.fate is Fate.FAILED]
        if fresh and refused:
            yield Violation("I12", _run(fresh[0]), "an atomic batch was accepted in part")
        if all(op.fate is Fate.UNKNOWN for op in ops):
            attempts = [
                Attempt(commit=op.value, ops=[op]) for op in ops if isinstance(op.value, Commit)
            ]
            visible = [one for one in attempts if one.commit.events and not _gone(case, one)]
            held = [one for one in visible if case.holds(one) is not None]
            if held and len(held) < len(visible):
                yield Violation("I12", held[0].commit.run_id, "an atomic batch is there in part")


def record_is_the_fold(case: Case) -> Iterator[Violation]:
    """I13: the record, the lists and the history say the same."""
    for dump in case.evidence.dumps:
        for id, dumped in dump.runs.items():
            for wrong in _inconsistent(dumped):
                yield Violation("I13", id, wrong)
        if dump.listed:
            listed = {id: status for status, ids in dump.listed.items() for id in ids}
            count = sum(len(ids) for ids in dump.listed.values())
            recorded = {id: dumped.run.status for id, dumped in dump.runs.items()}
            if listed != recorded or count != len(recorded):
                yield Violation("I13", "lists", f"a search finds {listed}, records say {recorded}")
        if dump.counts:
            runs = Counter((one.run.workflow, one.run.status) for one in dump.runs.values())
            if dump.counts != runs:
                yield Violation("I13", "counts", f"{dump.counts} are counted, of {dict(runs)}")
        owned = sorted(
            (timer.run_id, timer.id)
            for dumped in dump.runs.values()
            for timer in dumped.timers
            if not timer.fired
        )
        if owned != sorted((timer.run_id, timer.id) for timer in dump.timers):
            yield Violation("I13", "timers", f"runs have {owned}, the list {dump.timers}")
        if dump.snapshots != sorted(
            id for id, one in dump.runs.items() if one.snapshot is not None
        ):
            yield Violation("I13", "snapshots", f"the list has {dump.snapshots}")


def _inconsistent(dumped: RunDump) -> Iterator[str]:
    run, events = dumped.run, dumped.events
    if run.sequence != (events[-1].sequence if events else 0):
        yield f"its sequence is {run.sequence}, its last event {events[-1].sequence if events else 0}"
    if any(event.run_id != run.id for event in events):
        yield "it has events of another run"
    if events and run.token < max(event.token for event in events):
        yield f"its token is {run.token}, lower than that of an event"
    if dumped.inbox and run.inbox < dumped.inbox[-1].number:
        yield f"its inbox is at {run.inbox}, an item at {dumped.inbox[-1].number}"
    if run.status.terminal != (run.ended_at is not None):
        yield f"it is {run.status} and ended at {run.ended_at}"
    if run.status.terminal:
        if run.owner is not None or run.runnable_at is not None:
            yield f"it has ended and is owned by {run.owner!r}, runnable at {run.runnable_at}"
        if any(not timer.fired for timer in dumped.timers):
            yield "it has ended and has timers to fire"


def deleted_is_gone(case: Case) -> Iterator[Violation]:
    """I25: of a deleted run nothing is left, and one that takes its id starts fresh."""
    for op in case.evidence.ops:
        if op.name not in {"delete", "expire"} or op.fate is not Fate.OK:
            continue
        if not isinstance(op.value, str) or op.result is not True:
            continue
        yield from _remains(case, op.value, op)


def _remains(case: Case, run_id: str, op: Op) -> Iterator[Violation]:
    below = run_id + SEPARATOR

    def meant(id: str) -> bool:
        return id == run_id or id.startswith(below)

    # Lives that others began later, or may have, are not remains; their events are looked at.
    reborn = {
        id
        for attempt in case.attempts
        if attempt.fate is not Fate.FAILED and max(one.ended for one in attempt.ops) > op.begun
        for id in (attempt.commit.run_id, *(start.run.id for start in attempt.commit.starts))
    }
    for id, what in _traces(case.final):
        if meant(id) and id not in reborn:
            yield Violation("I25", run_id, f"deleted, and there is still {what}")
    for attempt in case.attempts:
        if (
            attempt.committed is not None
            and attempt.acked < op.begun
            and meant(attempt.commit.run_id)
        ):
            dumped = case.final.runs.get(attempt.commit.run_id)
            old = {event.id for event in attempt.commit.events}
            for event in dumped.events if dumped is not None else ():
                if event.id in old:
                    yield Violation("I25", run_id, f"event {event.id!r} survived its run")


def _traces(dump: Dump) -> Iterator[tuple[str, str]]:
    for id in dump.runs:
        yield id, f"run {id!r}"
    for timer in dump.timers:
        yield timer.run_id, f"timer {timer.id!r}"
    for task in dump.tasks:
        yield task.run_id, f"task {task.id!r}"
    for dead in dump.dead:
        yield dead.task.run_id, f"dead task {dead.task.id!r}"
    for id in dump.snapshots:
        yield id, "its snapshot"
    for root, hash in dump.facts:
        if root:
            yield root_of(root), f"fact {hash[:12]}…"


def _starts_apart(recorded: list[str], there: list[str]) -> bool:
    first = recorded.index(there[0])
    return recorded[first : first + len(there)] != there


def _gone(case: Case, attempt: Attempt) -> bool:
    run_id = attempt.commit.run_id
    return case.may_be_gone(run_id) and case.life(run_id, attempt.uid) is None


def _run(op: Op) -> str:
    return op.value.run_id if isinstance(op.value, Commit) else ""
