"""Values as the scripts read them: msgpack maps whose payloads are bytes that nobody looks into.

Numbers that may have more than 53 bits, and all that are compared for equality, travel as text: Lua
counts in doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw

from outlast.model.activity import Activity
from outlast.model.claim import Claim
from outlast.model.entry import Entry
from outlast.model.event import Event
from outlast.model.inbox import Send
from outlast.model.task import DeadTask, Task
from outlast.model.times import EPOCH, to_micros
from outlast.stores.redis.keys import Layout

Packed = dict[str, Any]
_MICROSECOND = timedelta(microseconds=1)

pack = msgspec.msgpack.Encoder().encode


def blob(data: bytes) -> Raw:
    """Bytes in a message to a script. Redis's Lua has an older msgpack, without a type for bytes:
    they travel as a text that nobody decodes."""
    return Raw(b"\xdb" + len(data).to_bytes(4, "big") + data)


def micros(moment: datetime) -> str:
    """A time as the scripts have it."""
    return str(to_micros(moment))


def stamp(moment: datetime) -> str:
    """The same, empty for a time that the store has to set."""
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
    return abroad("send", packed, item.id, to=layout.part_of(send.run_id), part=part)


def abroad(kind: str, packed: Packed, id: str, *, to: int, part: int) -> Packed:
    """As it is, if it is for this partition; else as an entry of the outbox."""
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
    """A task that died elsewhere."""
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
