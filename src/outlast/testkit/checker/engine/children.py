"""What children promise: I21."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.model.ids import SEPARATOR
from outlast.model.payloads import (
    ChildCompleted,
    ChildFailedEvent,
    ChildSpawned,
    OperationAbandoned,
)
from outlast.model.run import Run, Status
from outlast.testkit.checker.evidence import Case, Violation


def children_are_told_of(case: Case) -> Iterator[Violation]:
    """I21: a child is started once, its outcome reaches its parent once, and no child is orphaned."""
    for id, dumped in case.final.runs.items():
        spawned: dict[str, ChildSpawned] = {}
        open: dict[str, ChildSpawned] = {}
        for event, payload in case.typed_events(id):
            key = event.step_name
            match payload:
                case ChildSpawned():
                    if key in spawned:
                        yield Violation("I21", id, f"child {key!r} was started twice")
                    spawned[key] = open[key] = payload
                    yield from _missing(case, dumped.run, payload)
                case ChildCompleted() | ChildFailedEvent():
                    if open.pop(key, None) is None:
                        yield Violation("I21", id, f"no operation waits for the outcome of {key!r}")
                    else:
                        yield from _another_outcome(case, id, payload)
                case OperationAbandoned(awaited=False) if key in open:
                    yield from _left_behind(case, id, open.pop(key))
        if dumped.run.status.terminal:
            for child in open.values():
                yield from _left_behind(case, id, child)


def _missing(case: Case, parent: Run, spawned: ChildSpawned) -> Iterator[Violation]:
    child_id = spawned.child_run_id
    child = case.final.runs.get(child_id)
    if child is None:
        if not case.may_be_gone(child_id) and not _is_copy(child_id, parent.id):
            yield Violation("I21", parent.id, f"its child {child_id!r} is not there")
    elif child_id.startswith(parent.id + SEPARATOR) and child.run.parent != parent.id:
        message = f"its child {child_id!r} thinks it is of {child.run.parent!r}"
        yield Violation("I21", parent.id, message)


def _another_outcome(
    case: Case, parent: str, outcome: ChildCompleted | ChildFailedEvent
) -> Iterator[Violation]:
    child = case.final.runs.get(outcome.child_run_id)
    if child is None or child.run.parent != parent or case.may_be_gone(outcome.child_run_id):
        return
    run = child.run
    if isinstance(outcome, ChildCompleted):
        same = run.status is Status.COMPLETED and bytes(outcome.output or b"null") == bytes(
            run.result or b"null"
        )
    else:
        same = run.status in (Status.FAILED, Status.CANCELLED)
    if not same:
        message = (
            f"its history says that {run.id!r} has {type(outcome).__name__}: that is {run.status}"
        )
        yield Violation("I21", parent, message)


def _left_behind(case: Case, parent: str, spawned: ChildSpawned) -> Iterator[Violation]:
    """A child that ends with its parent has ended, once nothing more happens."""
    child = case.final.runs.get(spawned.child_run_id)
    if child is None or spawned.parent_close or not case.evidence.settled:
        return
    if child.run.parent == parent and not child.run.status.terminal:
        message = f"child {child.run.id!r} is {child.run.status}, and no run waits for it any more"
        yield Violation("I21", parent, message)


def _is_copy(child_id: str, parent: str) -> bool:
    """Whether the child is that of another run, whose history this one began with."""
    return SEPARATOR in child_id and not child_id.startswith(parent + SEPARATOR)
