"""Validation of values before anything is locked or written; the same for all stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID

from msgspec import Raw, Struct
from msgspec.structs import astuple

from outlast.errors import InvalidCommit, InvalidValue, NotSerializable, PayloadTooLarge
from outlast.model import queue_policy
from outlast.model.claim import Worker, check_ttl
from outlast.model.commit import Commit, Creation
from outlast.model.event import SCHEMA_VERSION, Event
from outlast.model.ids import SEPARATOR, check_id, check_name, root_of
from outlast.model.json import check_types, known_shapes
from outlast.model.run import Attribute, AttributeValue, Change, Run, Status
from outlast.model.run_contents import Fact, Send, Task, hash_of
from outlast.model.times import check_moment

MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
PLAIN_BYTES = 1024
MAX_PLAIN_INTEGER = 2**62
RAW_OR_NONE = frozenset({Raw, type(None)})
NONE_YET = 0
NO_METADATA: dict[str, str] = {}


def check_batch(commits: Sequence[Commit]) -> None:
    """Raise for a batch that is invalid in itself, whatever the store contains. Every store calls this
    first, so that bad input is an error before anything is locked or written."""
    runs: set[str] = set()
    for commit in commits:
        if commit.run_id in runs:
            raise InvalidCommit(
                f"two commits of run {commit.run_id!r} are in one batch: "
                "the second depends on the outcome of the first, so send it after"
            )
        runs.add(commit.run_id)
        check_commit(commit)
    creating = [commit for commit in commits if commit.create is not None]
    if not creating:
        return
    started = {start.run.id for commit in commits for start in commit.starts}
    for commit in creating:
        if commit.run_id in started:
            raise InvalidCommit(
                f"run {commit.run_id!r} is created by one commit of a batch and started as a "
                "child by another: only one of them can create it, so send them one after the other"
            )
        if commit.creation is Creation.REPLACE:
            below = commit.run_id + SEPARATOR
            if any(other.startswith(below) for other in runs):
                raise InvalidCommit(
                    f"run {commit.run_id!r} is replaced with its children in the same batch as a commit "
                    "of one of the children: send that one in another batch"
                )


def check_commit(commit: Commit) -> None:
    """Raise for a commit that contradicts itself or contains an invalid value."""
    check_id(commit.run_id, child=True)
    check_name(commit.id, "commit id")
    _check_events(commit.events, commit.run_id, commit.expected)
    if commit.create is not None:
        if commit.create.id != commit.run_id:
            raise InvalidCommit(
                f"a commit for run {commit.run_id!r} creates run {commit.create.id!r}"
            )
        _check_new_run(commit.create)
    if commit.hold is not None:
        if commit.create is None and not commit.force:
            raise InvalidCommit(
                "`hold` needs `create` or `force`: to claim an existing run, use claim_runs"
            )
        check_name(commit.hold.owner, "owner")
        check_ttl(commit.hold.ttl)
    if commit.expected is not None and commit.expected < 0:
        raise InvalidValue(f"expected sequence {commit.expected} is negative: use 0 for a new run")
    if commit.change is not None and not _is_at_a_step(commit.change):
        if commit.change.attributes:
            check_attributes(commit.change.attributes)
        check_fields(commit.change, f"the change of run {commit.run_id!r}")
    _check_parts(commit)


def check_fields(value: Struct, what: str) -> None:
    """Raise if a field of `value` cannot be stored and read back exactly."""
    if is_plain(value):
        return
    check_types(value, what)
    for name, found in zip(value.__struct_fields__, astuple(value), strict=True):
        if found:
            check_value(found, name, what)


def is_plain(value: Struct) -> bool:
    """Fast path: whether every field is empty, or short and of a plain type, so that no check can
    fail."""
    fields = astuple(value)
    if (type(value), *map(type, fields)) not in known_shapes:
        return False
    for found in filter(None, fields):
        kind = type(found)
        if kind is str or kind is Raw:
            if len(found) > PLAIN_BYTES or (kind is str and not found.isascii()):
                return False
        elif kind is datetime:
            if found.tzinfo is not UTC:
                return False
        elif kind is int:
            if not -MAX_PLAIN_INTEGER < found < MAX_PLAIN_INTEGER:
                return False
        elif kind is not Status:
            return False
    return True


def check_value(value: object, name: str, what: str) -> None:
    """Raise for a value that a store cannot return exactly: too large, a lone surrogate, a time without a
    time zone, NaN or infinity."""
    if isinstance(value, str):
        size = len(value) if value.isascii() else _utf8_size(value, name, what)
    elif isinstance(value, (Raw, bytes)):
        size = len(value)
    else:
        size = 0
        if isinstance(value, dict):
            for key, inner in value.items():
                check_value(key, name, what)
                check_value(inner, f"{name} → {key}", what)
        elif isinstance(value, datetime):
            check_moment(value, f"{name} of {what}")
        elif isinstance(value, float) and not isfinite(value):
            raise NotSerializable(
                f"{name} of {what} is {value}, which is not a number in JSON: use None or a text"
            )
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"{name} of {what} has {size:,} bytes, the limit is {MAX_PAYLOAD_BYTES:,}: "
            "store it elsewhere and pass a reference, or split it"
        )


def as_attributes(values: Mapping[str, AttributeValue]) -> dict[str, Attribute]:
    """Attributes as they are stored and searched: a moment as text in UTC, a UUID as text, an Enum member as its
    value, a Decimal as the nearest number. Whatever no store could keep is refused."""
    given: object = values
    if isinstance(given, Mapping):
        given = {name: _attribute(value) for name, value in given.items()}
    return check_attributes(given)


def _attribute(value: Any) -> Any:
    match value:
        case Enum():
            return _attribute(value.value)
        case datetime(tzinfo=zone):
            return value.isoformat() if zone is None else value.astimezone(UTC).isoformat()
        case date() | UUID():
            return str(value)
        case Decimal() if value.is_finite():
            return int(value) if value == value.to_integral_value() else float(value)
    return value


def check_attributes(attributes: object) -> dict[str, Attribute]:
    """Raise for attributes that a store could not read again: every listing of that run would fail."""
    if not isinstance(attributes, dict):
        raise InvalidValue(f"attributes={attributes!r}: use a dict of names and values")
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise InvalidValue(f"the name of attribute {name!r} must be text")
        if not isinstance(value, str | int | float):
            raise InvalidValue(f"attribute {name!r} must be text, a number or a boolean")
        check_value(name, "name", f"attribute {name!r}")
        check_value(value, "value", f"attribute {name!r}")
    return attributes


def check_reason(reason: object) -> str:
    """Raise for an invalid reason of a cancellation or termination."""
    if not isinstance(reason, str):
        raise InvalidValue(f"reason={reason!r}: use a text")
    check_value(reason, "reason", "an end")
    return reason


def check_key(scope: str, key: str, value: str, run_id: str | None) -> None:
    """Raise for an invalid idempotency key."""
    check_name(scope, "scope")
    check_name(key, "key")
    check_value(value, "value", f"key {key!r}")
    if run_id is not None:
        check_id(run_id, child=True)


def _utf8_size(value: str, name: str, what: str) -> int:
    try:
        return len(value.encode())
    except UnicodeEncodeError as error:
        raise NotSerializable(
            f"{name} of {what} contains a lone surrogate, which is not text: "
            "decode the original bytes as UTF-8"
        ) from error


def _check_events(events: tuple[Event, ...], run_id: str, expected: int | None) -> None:
    ids: set[str] = set()
    for position, event in enumerate(events, 1):
        if event.run_id != run_id:
            raise InvalidCommit(f"an event of run {event.run_id!r} is in a commit of {run_id!r}")
        if not _is_plain_event(event):
            check_fields(event, f"event {position} of a commit of {run_id!r}")
        if not event.id or event.id in ids:
            raise InvalidCommit(
                f"event id {event.id!r} is empty or occurs twice in one commit: use new_id()"
            )
        if not event.type:
            raise InvalidCommit(
                f"event {position} of a commit of {run_id!r} has no type: "
                "name what happened, as in 'order.paid'"
            )
        ids.add(event.id)
        if event.sequence and expected is not None and event.sequence != expected + position:
            raise InvalidCommit(
                f"event {position} of a commit on top of {expected} has sequence "
                f"{event.sequence}, not {expected + position}: sequences have no gaps"
            )


def _is_plain_event(event: Event) -> bool:
    """`check_types` and `is_plain` for events, written out because events are the most frequent."""
    data, output, at = event.data, event.output, event.timestamp
    try:
        text = event.type + event.id + event.step_name
        size = len(text) + len(data) + (0 if output is None else len(output))
    except TypeError:
        return False  # a field has the wrong type: `check_fields` reports it
    return (
        size <= PLAIN_BYTES
        and text.isascii()
        and type(data) in RAW_OR_NONE
        and type(output) in RAW_OR_NONE
        # By identity: True equals 1, and a store would return 1.
        and event.version is SCHEMA_VERSION
        and event.sequence is NONE_YET
        and event.token is NONE_YET
        and type(at) is datetime
        and at.tzinfo is UTC
        and event.metadata == NO_METADATA
    )


def _is_at_a_step(change: Change) -> bool:
    """Whether a change sets only status and current step: the most frequent change."""
    status, step = change.status, change.current_step
    return (
        type(status) is Status
        and type(step) is str
        and len(step) <= PLAIN_BYTES
        and step.isascii()
        and change == Change(status=status, wait_kind=None, current_step=step)
    )


def _check_new_run(run: Run) -> None:
    # Only a run with a parent in the same tree may have `~` in its id: a user's id cannot be in another tree.
    parent = run.parent or ""
    is_child = root_of(run.id) == root_of(parent) and all(parent.split(SEPARATOR))
    check_id(run.id, child=is_child)
    if run.attributes:
        check_attributes(run.attributes)
    if not is_plain(run):
        check_fields(run, f"run {run.id!r}")


def _check_parts(commit: Commit) -> None:
    run_id = commit.run_id
    for send in commit.sends:
        check_send(send)
    for start in commit.starts:
        if start.run.parent != run_id:
            raise InvalidCommit(f"child {start.run.id!r} names parent {start.run.parent!r}")
        _check_new_run(start.run)
        _check_events(start.events, start.run.id, 0)
    for task in commit.tasks:
        _check_own_task(task, run_id)
    for one in commit.dead:
        _check_own_task(one.task, run_id)
        check_fields(one, f"dead task {one.task.id!r}")
    for claim in commit.finishes:
        if claim.task_id is None or claim.run_id != run_id:
            raise InvalidCommit(f"{claim.subject} cannot be finished by a commit of {run_id!r}")
    for timer in commit.timers:
        check_name(timer.id, "timer id")
        check_fields(timer, f"timer {timer.id!r}")
        if timer.run_id != run_id:
            raise InvalidCommit(f"timer {timer.id!r} of run {timer.run_id!r} is in {run_id!r}")
    for entry in commit.entries:
        if entry.run_id != run_id:
            raise InvalidCommit(f"entry {entry.id!r} of run {entry.run_id!r} is in {run_id!r}")
        check_fields(entry, f"entry {entry.id!r}")
    for activity in commit.activities:
        check_name(activity.id, "activity id")
        if activity.run_id != run_id:
            raise InvalidCommit(
                f"activity {activity.id!r} of run {activity.run_id!r} is in {run_id!r}"
            )
        check_fields(activity, f"activity {activity.id!r}")
    for fact in commit.facts:
        check_fact(fact)
    if commit.snapshot is not None:
        if commit.snapshot.run_id != run_id or commit.snapshot.sequence < 0:
            raise InvalidCommit(
                f"the snapshot is of run {commit.snapshot.run_id!r}, not {run_id!r}"
            )
        check_fields(commit.snapshot, f"the snapshot of run {run_id!r}")


def _check_own_task(task: Task, run_id: str) -> None:
    check_task(task)
    if task.run_id != run_id:
        raise InvalidCommit(f"task {task.id!r} of run {task.run_id!r} is in {run_id!r}")


def check_send(send: Send) -> None:
    """Raise for an invalid item of an inbox."""
    check_id(send.run_id, child=True)
    check_name(send.item.id, "item id")
    check_name(send.item.kind, "item kind")
    check_types(send, f"what is sent to run {send.run_id!r}")
    check_fields(send.item, f"item {send.item.id!r} for run {send.run_id!r}")


def check_task(task: Task) -> None:
    """Raise for an invalid task."""
    check_name(task.id, "task id")
    check_name(task.queue, "queue name")
    if task.key:
        queue_policy.check_key(task.key)
    check_fields(task, f"task {task.id!r}")


def check_worker(worker: Worker) -> None:
    """Raise for an invalid heartbeat."""
    check_name(worker.owner, "owner")
    check_fields(worker, f"worker {worker.owner!r}")


def check_fact(fact: Fact) -> None:
    """Raise for a fact whose name is not the hash of its content."""
    check_value(fact.data, "data", f"fact {fact.hash!r}")
    if fact.hash != hash_of(fact.data):
        raise InvalidCommit(f"fact {fact.hash!r} is not the SHA-256 of its content: use Fact.of")


def check_after(after: int) -> int:
    """Raise for a negative position in a history."""
    if after < 0:
        raise InvalidValue(f"after={after} is negative: use 0 for the beginning")
    return after
