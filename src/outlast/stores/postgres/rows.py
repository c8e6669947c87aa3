"""Rows as values, and text as PostgreSQL can store it.

PostgreSQL's text has no NUL. Where outlast allows one (in an error's message, a step's name) `quote` writes
U+001A '0', and U+001A '1' for U+001A itself. Other text is stored unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from outlast.errors import Undecodable
from outlast.model.event import Event
from outlast.model.run import Attribute, Run, Status
from outlast.model.run_contents import (
    Activity,
    DeadTask,
    Entry,
    HeldTask,
    Item,
    Snapshot,
    Task,
    Timer,
)
from outlast.model.times import EPOCH, from_micros

Row = Sequence[Any]

STATUS = {status.value: status for status in Status}
_metadata = msgspec.json.Decoder(dict[str, str])
_attributes = msgspec.json.Decoder(dict[str, Attribute])
_version = msgspec.json.Decoder(int | str)
# Not JSON: payloads are kept byte for byte, and need not be JSON.
_published = msgspec.msgpack.Decoder(dict[str, bytes])
_DAMAGE = (KeyError, TypeError, ValueError, OverflowError, msgspec.DecodeError)


def quote(text: str) -> str:
    """Text without NUL."""
    if "\x00" in text or "\x1a" in text:
        return text.replace("\x1a", "\x1a1").replace("\x00", "\x1a0")
    return text


def unquote(stored: str) -> str:
    """The inverse of `quote`."""
    if "\x1a" in stored:
        return stored.replace("\x1a0", "\x00").replace("\x1a1", "\x1a")
    return stored


def quote_or_none(text: str | None) -> str | None:
    """`quote`, or None."""
    return None if text is None else quote(text)


def to_run(row: Row) -> Run:
    """The run of a row of the view `records`."""
    (
        _, id, uid, workflow, parent, status, wait_kind, current_step, runnable_at, owner, token,
        claimed_until, sequence, revision, commit_id, inbox, created_at, updated_at, ended_at,
        version, definition, queue, priority, attributes, input, error, recover_to, rejected_by, ctx,
        result, halt_data,
    ) = row  # fmt: skip
    try:
        return Run(
            id=id,
            workflow=unquote(workflow),
            uid=unquote(uid),
            version="" if version is None else _version.decode(version),
            definition=unquote(definition or ""),
            status=STATUS[status],
            wait_kind=_unquote_or_none(wait_kind),
            input=raw(input),
            ctx={} if ctx is None else _unpack_ctx(ctx),
            current_step=_unquote_or_none(current_step),
            result=raw(result),
            error=_unquote_or_none(error),
            halt_data=raw(halt_data),
            recover_to=_unquote_or_none(recover_to),
            rejected_by=_unquote_or_none(rejected_by),
            attributes={} if attributes is None else _attributes.decode(attributes),
            parent=_unquote_or_none(parent),
            queue="default" if queue is None else unquote(queue),
            priority=priority or 0,
            runnable_at=moment(runnable_at),
            sequence=sequence,
            revision=revision,
            token=token,
            owner=owner,
            claimed_until=moment(claimed_until),
            commit_id=commit_id,
            inbox=inbox,
            created_at=from_micros(created_at),
            updated_at=from_micros(updated_at),
            ended_at=moment(ended_at),
        )
    except _DAMAGE as damage:
        raise Undecodable(f"the record of run {id!r} is damaged: {damage!r}") from damage


def to_events(run_id: str, rows: Sequence[Row]) -> list[Event]:
    """The events of rows of `events`."""
    try:
        return [
            Event(
                type=unquote(type),
                run_id=run_id,
                id=unquote(id),
                sequence=sequence,
                version=version,
                step_name=unquote(step_name),
                data=Raw(data),
                output=raw(output),
                timestamp=from_micros(timestamp),
                metadata=_metadata_of(metadata),
                token=token,
            )
            for sequence, id, type, version, step_name, timestamp, token, metadata, data, output in (
                rows
            )
        ]
    except _DAMAGE as damage:
        raise Undecodable(f"the history of run {run_id!r} is damaged: {damage!r}") from damage


def to_item(row: Row) -> Item:
    """An inbox item."""
    number, id, kind, name, sender, sent_at, data = row
    return Item(
        number=number,
        id=id,
        kind=kind,
        name=unquote(name),
        sender=unquote(sender),
        sent_at=from_micros(sent_at),
        data=raw(data),
    )


def to_timer(row: Row) -> Timer:
    """A timer."""
    run_id, id, fire_at, fired = row
    return Timer(run_id=run_id, id=id, fire_at=from_micros(fire_at), fired=fired)


def to_entry(run_id: str, row: Row) -> Entry:
    """An audit line."""
    timestamp, id, step_id, step_type, action, duration_ms, error, input, output = row
    return Entry(
        run_id=run_id,
        timestamp=from_micros(timestamp),
        id=unquote(id),
        step_id=unquote(step_id),
        step_type=unquote(step_type),
        action=unquote(action),
        duration_ms=duration_ms,
        error=_unquote_or_none(error),
        input=raw(input),
        output=raw(output),
    )


def to_activity(row: Row) -> Activity:
    """The state of an activity."""
    id, run_id, name, status, attempt, started_at, ended_at, error, input, output = row
    if status not in STATUS:
        raise Undecodable(f"activity {id!r} has the unknown status {status!r}")
    return Activity(
        id=id,
        run_id=run_id,
        name=unquote(name),
        status=STATUS[status],
        attempt=attempt,
        started_at=moment(started_at),
        ended_at=moment(ended_at),
        error=_unquote_or_none(error),
        input=raw(input),
        output=raw(output),
    )


def to_snapshot(row: Row) -> Snapshot:
    """A snapshot, with the store's time if the envelope has none."""
    envelope, saved_at = row
    snapshot = Snapshot.unpack(envelope)
    if snapshot.created_at == EPOCH:
        snapshot = msgspec.structs.replace(snapshot, created_at=from_micros(saved_at))
    return snapshot


def to_task(row: Row) -> Task:
    """The task of a row of `tasks` or `dead_tasks`, whose first and last columns are the same."""
    (
        _, _, queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt,
        metadata, enqueued_at, input, *_, fair_key,
    ) = row  # fmt: skip
    return Task(
        id=id,
        queue=queue,
        kind=unquote(kind),
        name=unquote(name),
        run_id=unquote(run_id),
        uid=unquote(uid),
        step=unquote(step),
        definition=unquote(definition),
        input=raw(input),
        priority=priority,
        run_at=moment(run_at),
        attempt=attempt,
        metadata=_metadata_of(metadata),
        enqueued_at=from_micros(enqueued_at),
        key=fair_key,
    )


def to_holding(row: Row) -> HeldTask | None:
    """The current or last owner of a row of `tasks`."""
    task = to_task(row)
    owner, claimed_until = tuple(row)[18:20]
    return None if owner is None else HeldTask(task.id, task.queue, owner, moment(claimed_until))


def to_dead_task(row: Row) -> DeadTask:
    """A dead task."""
    reason, died_at = tuple(row)[16:18]
    return DeadTask(to_task(row), unquote(reason), from_micros(died_at))


def raw(value: bytes | None) -> Raw | None:
    """A payload, or None."""
    return None if value is None else Raw(value)


def moment(stored: int | None) -> datetime | None:
    """A time, or None."""
    return None if stored is None else from_micros(stored)


def _unquote_or_none(stored: str | None) -> str | None:
    return None if stored is None else unquote(stored)


def _unpack_ctx(packed: bytes) -> dict[str, Raw]:
    return {name: Raw(value) for name, value in _published.decode(packed).items()}


def _metadata_of(stored: str | None) -> dict[str, str]:
    return {} if stored is None else _metadata.decode(stored)
