"""Values as the scripts read them: msgpack maps with opaque payloads.

Numbers that may exceed 53 bits, and all numbers that are compared for equality, are sent as text: Lua has only
doubles. The record of a run is a hash with the fields that scripts use, and the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from outlast.model.claim import Claim
from outlast.model.event import Event
from outlast.model.run import Attribute, Change, Run
from outlast.model.run_contents import Activity, DeadTask, Entry, Send, Task
from outlast.model.times import EPOCH, to_micros
from outlast.stores.redis.keys import Layout, framed

Packed = dict[str, Any]
_MICROSECOND = timedelta(microseconds=1)

pack = msgspec.msgpack.Encoder().encode


def blob(data: bytes) -> Raw:
    """Bytes in a message to a script. The msgpack of Redis's Lua has no type for bytes, so they are sent as text
    that is never decoded."""
    return Raw(b"\xdb" + len(data).to_bytes(4, "big") + data)


def micros(moment: datetime) -> str:
    """A time as the scripts have it."""
    return str(to_micros(moment))


def stamp(moment: datetime) -> str:
    """The same, empty for a time that the store sets."""
    return "" if moment == EPOCH else micros(moment)


def due_score(moment: datetime) -> str:
    """When a timer is due, in milliseconds, as the score of `timers:due`."""
    whole, rest = divmod(to_micros(moment), 1000)
    return f"{whole}.{rest:03d}" if rest else str(whole)


def lease(seconds: float) -> int:
    """A duration in microseconds."""
    return timedelta(seconds=seconds) // _MICROSECOND


def payload(value: Raw | None) -> bytes | None:
    """The bytes of a payload."""
    return None if value is None else bytes(value)


# -- what a run owns, sends and asks for ----------------------------------------------------------


def pack_events(events: Sequence[Event]) -> list[Raw | str]:
    """Events as a flat list: id, time, bytes."""
    flat: list[Raw | str] = []
    for event in events:
        body = (
            event.id,
            str(event.type),
            event.version,
            event.step_name,
            bytes(event.data),
            payload(event.output),
            event.metadata,
        )
        flat += (event.id, stamp(event.timestamp), blob(pack(body)))
    return flat


def pack_send(send: Send, layout: Layout, part: int) -> Packed:
    """An item for an inbox."""
    item = send.item
    body = (item.id, item.kind, item.name, item.sender, payload(item.data))
    packed: Packed = {"run": send.run_id, "id": item.id, "bytes": blob(pack(body))}
    if send.uid is not None:
        packed["uid"] = send.uid
    return for_partition("send", packed, item.id, to=layout.part_of(send.run_id), part=part)


def for_partition(kind: str, packed: Packed, id: str, *, to: int, part: int) -> Packed:
    """The packed item itself for this partition; else an entry of the outbox."""
    if to == part:
        return packed
    return {"id": id, "to": to, "entry": blob(pack({"to": to, "kind": kind, kind: packed}))}


def pack_claim(claim: Claim) -> Packed:
    """The claim on a task or a run."""
    packed: Packed = {"run": claim.run_id, "uid": claim.uid, "token": str(claim.token)}
    if claim.task_id is not None:
        packed |= {"id": claim.task_id, "queue": claim.queue or ""}
    return packed


def pack_task(task: Task) -> Packed:
    """A task: what scripts look at, and the bytes."""
    run_at = None if task.run_at is None else to_micros(task.run_at)
    body = (
        task.kind,
        task.name,
        task.step,
        task.definition,
        payload(task.input),
        run_at,
        task.metadata,
    )
    packed: Packed = {
        "queue": task.queue,
        "run": task.run_id,
        "id": task.id,
        "uid": task.uid,
        "priority": str(task.priority),
        "attempt": str(task.attempt),
        "bytes": blob(pack(body)),
    }
    if run_at is not None:
        packed["ready"] = str(run_at)
    if task.key:
        packed["key"] = task.key
    return packed


def pack_dead(dead: DeadTask) -> Packed:
    """A dead task of another store."""
    packed = pack_task(dead.task) | {"reason": dead.reason, "died": micros(dead.died_at)}
    if dead.task.enqueued_at != EPOCH:
        packed["enqueued"] = micros(dead.task.enqueued_at)
    return packed


def pack_entry(entry: Entry) -> bytes:
    """An audit line."""
    return pack(
        (
            entry.id,
            entry.step_id,
            entry.action,
            entry.step_type,
            entry.duration_ms,
            payload(entry.input),
            payload(entry.output),
            entry.error,
        )
    )


def pack_activity(activity: Activity) -> bytes:
    """An activity state."""
    started, ended = activity.started_at, activity.ended_at
    return pack(
        (
            activity.run_id,
            activity.name,
            activity.status.value,
            payload(activity.input),
            payload(activity.output),
            activity.error,
            activity.attempt,
            None if started is None else to_micros(started),
            None if ended is None else to_micros(ended),
        )
    )


text = msgspec.json.Encoder().encode

COLD: dict[str, Callable[[Any], bytes | str | None]] = {
    "version": lambda value: text(value) if value != "" else None,
    "definition": lambda value: value or None,
    "wait_kind": lambda value: value,
    "input": payload,
    "ctx": lambda value: pack({k: bytes(v) for k, v in value.items()}) if value else None,
    "current_step": lambda value: value,
    "result": payload,
    "error": lambda value: value,
    "halt_data": payload,
    "recover_to": lambda value: value,
    "rejected_by": lambda value: value,
    "attributes": lambda value: text(value) if value else None,
    "queue": lambda value: value if value != "default" else None,
    "priority": lambda value: str(value) if value else None,
}
"""Fields of the record that no script uses. A default is not stored."""


def tag(name: str, value: Attribute) -> bytes:
    """An attribute as it is indexed. True is not 1, and 1 is not 1.0."""
    return framed(name) + text(value + 0.0 if type(value) is float else value)


def pack_tags(attributes: dict[str, Attribute]) -> bytes:
    """All attributes as they are indexed."""
    return pack([blob(tag(name, value)) for name, value in attributes.items()])


def pack_run(run: Run) -> Packed:
    """The record of a new life."""
    cold: list[Raw | str] = []
    for name, encode in COLD.items():
        value = encode(getattr(run, name))
        if value is not None:
            cold += (name, _cell(value))
    packed: Packed = {
        "id": run.id,
        "uid": run.uid,
        "workflow": run.workflow,
        "status": run.status.value,
        "set": cold,
    }
    if run.parent is not None:
        packed["parent"] = run.parent
    if run.runnable_at is not None:
        packed["runnable"] = micros(run.runnable_at)
    if run.created_at != EPOCH:
        packed["created"] = micros(run.created_at)
    if run.ended_at is not None and run.status.terminal:
        packed["ended"] = micros(run.ended_at)
    if run.attributes:
        packed["tags"] = blob(pack_tags(run.attributes))
    return packed


def pack_change(change: Change) -> Packed:
    """The changes of a record."""
    changed: list[Raw | str] = []
    gone: list[str] = []
    packed: Packed = {}
    for name, found in change.values().items():
        if name in COLD:
            value = COLD[name](found)
            if value is None:
                gone.append(name)
            else:
                changed += (name, _cell(value))
        elif name == "runnable_at":
            packed["runnable"] = micros(found) if isinstance(found, datetime) else ""
        else:
            packed[name] = str(found)
    if change.attributes is not UNSET:
        packed["tags"] = blob(pack_tags(change.attributes))
    if changed:
        packed["set"] = changed
    if gone:
        packed["unset"] = gone
    return packed


def _cell(value: bytes | str) -> Raw | str:
    return blob(value) if isinstance(value, bytes) else value
