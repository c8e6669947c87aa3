"""Values to rows and back: text, integers, and payloads to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw, Struct

from outlast.errors import Undecodable
from outlast.model.event import Event
from outlast.model.run import TERMINAL, Attribute, Run, Status
from outlast.model.times import EPOCH, from_micros, to_micros

STATUS = {status.value: status for status in Status}
RUN_COLUMNS = 19

_text = msgspec.json.Encoder()
_metadata = msgspec.json.Decoder(dict[str, str])
_attributes = msgspec.json.Decoder(dict[str, Attribute])
_version = msgspec.json.Decoder(int | str)
# Not JSON: it would lose the spaces around a value, and one that is not JSON would spoil the rest.
_published = msgspec.msgpack.Decoder(dict[str, bytes])


class RunRow(Struct, gc=False):
    """A row of `runs`, in the order of its columns, and whether it has to be written."""

    key: int
    id: str
    uid: str
    workflow: str
    parent: str | None
    status: str
    wait_kind: str | None
    current_step: str | None
    runnable_at: int | None
    owner: str | None
    token: int
    claimed_until: int | None
    sequence: int
    revision: int
    commit_id: str
    inbox: int
    created_at: int
    updated_at: int
    ended_at: int | None

    is_new: bool = False
    is_changed: bool = False
    is_moved: bool = False  # an indexed column was changed

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended."""
        return self.status in TERMINAL


# -- runs -----------------------------------------------------------------------------------------


def to_run(row: tuple[Any, ...]) -> Run:
    """The record, of a row of `runs` joined with its details and values."""
    hot = RunRow(*row[:RUN_COLUMNS])
    (
        version, definition, queue, priority, attributes, input,
        error, recover_to, rejected_by, ctx, result, halt_data,
    ) = row[RUN_COLUMNS:]  # fmt: skip
    try:
        return Run(
            id=hot.id,
            workflow=hot.workflow,
            uid=hot.uid,
            version="" if version is None else _version.decode(version),
            definition=definition or "",
            status=STATUS[hot.status],
            wait_kind=hot.wait_kind,
            input=raw(input),
            ctx={} if ctx is None else unpack_ctx(ctx),
            current_step=hot.current_step,
            result=raw(result),
            error=error,
            halt_data=raw(halt_data),
            recover_to=recover_to,
            rejected_by=rejected_by,
            attributes={} if attributes is None else _attributes.decode(attributes),
            parent=hot.parent,
            queue="default" if queue is None else queue,
            priority=priority or 0,
            runnable_at=moment(hot.runnable_at),
            sequence=hot.sequence,
            revision=hot.revision,
            token=hot.token,
            owner=hot.owner,
            claimed_until=moment(hot.claimed_until),
            commit_id=hot.commit_id,
            inbox=hot.inbox,
            created_at=from_micros(hot.created_at),
            updated_at=from_micros(hot.updated_at),
            ended_at=moment(hot.ended_at),
        )
    except (KeyError, TypeError, OverflowError, msgspec.DecodeError) as damage:
        raise Undecodable(f"the record of run {hot.id!r} is damaged: {damage!r}") from damage


def detail_row(key: int, run: Run) -> tuple[Any, ...] | None:
    """The row of `run_details` of a new run, or None if all are defaults."""
    if not (run.version or run.definition or run.attributes or run.priority) and (
        run.input is None and run.queue == "default"
    ):
        return None
    return (
        key,
        COLD["version"](run.version),
        run.definition,
        run.queue,
        run.priority,
        COLD["attributes"](run.attributes),
        payload(run.input),
    )


def value_row(key: int, run: Run) -> tuple[Any, ...] | None:
    """The row of `run_values` of a new run, or None if all are defaults."""
    row = (
        run.error,
        run.recover_to,
        run.rejected_by,
        pack_ctx(run.ctx) if run.ctx else None,
        payload(run.result),
        payload(run.halt_data),
    )
    return None if row == (None,) * 6 else (key, *row)


def pack_ctx(ctx: dict[str, Raw]) -> bytes:
    """Published values as bytes."""
    return msgspec.msgpack.encode({name: bytes(value) for name, value in ctx.items()})


def unpack_ctx(packed: bytes) -> dict[str, Raw]:
    """Published values from bytes."""
    return {name: Raw(value) for name, value in _published.decode(packed).items()}


def tag(value: Attribute) -> str:
    """An attribute as text, tagged by type: equal texts are equal values."""
    if isinstance(value, bool):
        return f"b{value:d}"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        # 0.0 and -0.0 are equal, so they are found as one.
        return f"f{value + 0.0!r}"
    return f"s{value}"


# -- events ---------------------------------------------------------------------------------------


def event_rows(
    events: Iterable[Event], *, key: int, after: int, token: int, now: int
) -> list[tuple[Any, ...]]:
    """Rows of `events`, numbered from `after` on and stamped where they have no time."""
    rows = []
    when, stamp = EPOCH, now
    for sequence, event in enumerate(events, after + 1):
        if event.timestamp is not when:  # neighbours often share theirs
            when = event.timestamp
            stamp = now if when == EPOCH else to_micros(when)
        rows.append(
            (
                key,
                sequence,
                event.id,
                str(event.type),
                event.version,
                event.step_name,
                stamp,
                token,
                text(event.metadata) if event.metadata else None,
                bytes(event.data),
                None if event.output is None else bytes(event.output),
            )
        )
    return rows


def to_events(run_id: str, rows: list[tuple[Any, ...]]) -> list[Event]:
    """The history, of rows of `events` without their key."""
    events = []
    stamp, when = 0, EPOCH
    try:
        for (
            sequence,
            id,
            type,
            version,
            step_name,
            timestamp,
            token,
            metadata,
            data,
            output,
        ) in rows:
            if timestamp != stamp:  # neighbours often share theirs
                stamp, when = timestamp, EPOCH + timedelta(microseconds=timestamp)
            events.append(
                Event(
                    type=type,
                    run_id=run_id,
                    id=id,
                    sequence=sequence,
                    version=version,
                    step_name=step_name,
                    data=Raw(data),
                    output=None if output is None else Raw(output),
                    timestamp=when,
                    metadata={} if metadata is None else _metadata.decode(metadata),
                    token=token,
                )
            )
    except (TypeError, OverflowError, msgspec.DecodeError) as damage:
        raise Undecodable(f"the history of run {run_id!r} is damaged: {damage!r}") from damage
    return events


# -- pieces ---------------------------------------------------------------------------------------


def payload(value: Raw | None) -> bytes | None:
    """A payload as it is stored."""
    return None if value is None else bytes(value)


def raw(value: bytes | None) -> Raw | None:
    """A payload as it is handed out."""
    return None if value is None else Raw(value)


def text(value: object) -> str:
    """JSON text of plain values."""
    return _text.encode(value).decode()


def micros_or_none(when: datetime | None) -> int | None:
    """A time as it is stored, if there is one."""
    return None if when is None else to_micros(when)


def moment(stored: int | None) -> datetime | None:
    """A time as it is handed out, if there is one."""
    return None if stored is None else from_micros(stored)


def metadata_of(stored: str | None) -> dict[str, str]:
    """Metadata of an event or a task."""
    return {} if stored is None else _metadata.decode(stored)


def _as_is(value: Any) -> Any:
    return value


COLD: dict[str, Callable[[Any], Any]] = {
    "version": text,
    "definition": _as_is,
    "queue": _as_is,
    "priority": _as_is,
    "attributes": text,
    "input": payload,
    "error": _as_is,
    "recover_to": _as_is,
    "rejected_by": _as_is,
    "ctx": pack_ctx,
    "result": payload,
    "halt_data": payload,
}
"""The fields of a record that have a column outside `runs`, and how they are stored."""
