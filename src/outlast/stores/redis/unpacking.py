"""Replies of Redis as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw

from outlast.errors import Undecodable
from outlast.model.claim import Claim
from outlast.model.event import Event
from outlast.model.run import Attribute, Run, Status
from outlast.model.run_contents import Activity, DeadTask, Entry, Item, Snapshot, Task, Timer
from outlast.model.times import EPOCH, from_micros

unpack = msgspec.msgpack.decode
_ctx = msgspec.msgpack.Decoder(dict[str, bytes])
_attributes = msgspec.json.Decoder(dict[str, Attribute])
_version = msgspec.json.Decoder(int | str)
_DAMAGED = (ValueError, TypeError, KeyError, IndexError, msgspec.DecodeError, UnicodeDecodeError)


def raw(value: bytes | None) -> Raw | None:
    """A payload."""
    return None if value is None else Raw(value)


def moment(micros: bytes | str | int | None) -> datetime | None:
    """A time, if there is one."""
    return None if micros is None else from_micros(int(micros))


def pairs(reply: Any) -> dict[bytes, bytes]:
    """A hash as HGETALL returns it, in either version of the protocol."""
    if isinstance(reply, Mapping):
        return dict(reply)
    return dict(zip(reply[::2], reply[1::2], strict=True))


def to_run(run_id: str, reply: Any) -> Run | None:
    """The record of a run; None for a missing hash."""
    fields = pairs(reply)
    if not fields:
        return None
    try:
        return _to_run({name.decode(): value for name, value in fields.items()})
    except _DAMAGED as error:
        raise Undecodable(f"the record of run {run_id!r} is damaged: {error}") from error


def _to_run(found: dict[str, bytes]) -> Run:
    def words(name: str) -> str | None:
        value = found.get(name)
        return None if value is None else value.decode()

    quarantine = words("quarantine")
    return Run(
        id=found["id"].decode(),
        workflow=found["workflow"].decode(),
        uid=found["uid"].decode(),
        version=_version.decode(found["version"]) if "version" in found else "",
        definition=words("definition") or "",
        status=Status(found["status"].decode()),
        wait_kind=words("wait_kind"),
        input=raw(found.get("input")),
        ctx={k: Raw(v) for k, v in _ctx.decode(found["ctx"]).items()} if "ctx" in found else {},
        current_step=words("current_step"),
        result=raw(found.get("result")),
        error=words("error") if quarantine is None else quarantine,
        halt_data=raw(found.get("halt_data")),
        recover_to=words("recover_to"),
        rejected_by=words("rejected_by"),
        attributes=_attributes.decode(found["attributes"]) if "attributes" in found else {},
        parent=words("parent"),
        queue=found["queue"].decode() if "queue" in found else "default",
        priority=int(found.get("priority", b"0")),
        runnable_at=moment(found.get("runnable")),
        sequence=int(found["sequence"]),
        revision=int(found["revision"]),
        token=int(found["token"]),
        owner=words("owner"),
        claimed_until=moment(found.get("until")),
        commit_id=found["commit"].decode(),
        inbox=int(found["inbox"]),
        created_at=from_micros(int(found["created"])),
        updated_at=from_micros(int(found["updated"])),
        ended_at=moment(found.get("ended")),
    )


def to_event(run_id: str, member: bytes) -> Event:
    """An event of a history."""
    try:
        sequence, token, time, body = member.split(b" ", 3)
        id, type, version, step_name, data, output, metadata = unpack(body)
        return Event(
            type=type,
            run_id=run_id,
            id=id,
            sequence=int(sequence),
            version=version,
            step_name=step_name,
            data=Raw(data),
            output=raw(output),
            timestamp=from_micros(int(time)),
            metadata=metadata,
            token=int(token),
        )
    except _DAMAGED as error:
        raise Undecodable(f"an event of run {run_id!r} is damaged: {error}") from error


def token_of(member: bytes) -> int:
    """The token under which an event was written."""
    return int(member.split(b" ", 2)[1])


def to_item(member: bytes) -> Item:
    """An item of an inbox."""
    number, time, body = member.split(b" ", 2)
    id, kind, name, sender, data = unpack(body)
    return Item(
        id=id,
        kind=kind,
        name=name,
        sender=sender,
        data=raw(data),
        number=int(number),
        sent_at=from_micros(int(time)),
    )


def to_entry(run_id: str, line: bytes) -> Entry:
    """An audit line."""
    time, body = line.split(b" ", 1)
    id, step_id, action, step_type, duration_ms, input, output, error = unpack(body)
    return Entry(
        run_id=run_id,
        step_id=step_id,
        action=action,
        id=id,
        step_type=step_type,
        duration_ms=duration_ms,
        input=raw(input),
        output=raw(output),
        error=error,
        timestamp=from_micros(int(time)),
    )


def to_activity(id: str, body: bytes) -> Activity:
    """An activity state."""
    run_id, name, status, input, output, error, attempt, started, ended = unpack(body)
    return Activity(
        id=id,
        run_id=run_id,
        name=name,
        status=Status(status),
        input=raw(input),
        output=raw(output),
        error=error,
        attempt=attempt,
        started_at=moment(started),
        ended_at=moment(ended),
    )


def to_snapshot(value: bytes) -> Snapshot:
    """A snapshot, with the time of storing if the envelope has none."""
    time, envelope = value.split(b" ", 1)
    snapshot = Snapshot.unpack(envelope)
    if snapshot.created_at == EPOCH:
        return msgspec.structs.replace(snapshot, created_at=from_micros(int(time)))
    return snapshot


def to_timer(fields: Sequence[bytes]) -> Timer:
    """A timer, from its run, id, fire_at, fired."""
    run_id, id, fire_at, fired = fields
    return Timer(
        run_id=run_id.decode(),
        id=id.decode(),
        fire_at=from_micros(int(fire_at)),
        fired=fired == b"1",
    )


TaskState = dict[str, Any]


def to_state(packed: bytes) -> TaskState:
    """The state of a task. The msgpack of Lua has only text."""
    state: TaskState = unpack(packed)
    return state


def to_task(state: TaskState, body: bytes) -> Task:
    """A task of a queue."""
    kind, name, step, definition, input, run_at, metadata = unpack(body)
    return Task(
        id=state["id"],
        queue=state["queue"],
        kind=kind,
        name=name,
        run_id=state["run"],
        uid=state["uid"],
        step=step,
        definition=definition,
        input=raw(input),
        priority=int(state["priority"]),
        run_at=moment(run_at),
        attempt=int(state["attempt"]),
        metadata=metadata,
        enqueued_at=from_micros(int(state["enqueued"])),
        key=state.get("key", ""),
    )


def to_dead(state: TaskState, body: bytes) -> DeadTask:
    """A dead task."""
    return DeadTask(to_task(state, body), state["reason"], from_micros(int(state["died"])))


def to_claim(fields: Sequence[bytes]) -> Claim:
    """The claim on a task, as `claim_of` of lib/tasks.lua gives it."""
    owner, token, now, until, run_id, uid, id, queue = (field.decode() for field in fields)
    return Claim(
        owner=owner,
        token=int(token),
        claimed_at=from_micros(int(now)),
        expires_at=from_micros(int(until)) if until else None,
        run_id=run_id,
        uid=uid,
        task_id=id,
        queue=queue,
    )
