"""The rarer contents of commits, as one JSON text a batch.

Payloads are sent beside it as bytes (`Blobs`), and the JSON refers to them by position: they need not be JSON,
and PostgreSQL would not keep them byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from outlast.model.claim import Claim
from outlast.model.commit import Commit, Start
from outlast.model.event import Event
from outlast.model.run import Attribute, Change, Run
from outlast.model.run_contents import DeadTask, Send, Task
from outlast.model.times import EPOCH, to_micros
from outlast.stores.postgres.rows import quote, quote_or_none

_json = msgspec.json.Encoder()


class Blobs(list[bytes]):
    """Payloads that a JSON text refers to by position, from 1 as in PostgreSQL's arrays."""

    def put(self, value: Raw | bytes | None) -> int | None:
        """Add a payload; its position, or None for None."""
        if value is None:
            return None
        self.append(bytes(value))
        return len(self)


def contents_of(
    commit: Commit, blobs: Blobs, groups: list[tuple[Event, ...]]
) -> dict[str, Any] | None:
    """What only some commits have. The events of children are appended to `groups`."""
    doc: dict[str, Any] = {}
    if commit.create is not None:
        doc["new_run"] = _new_run(commit.create, blobs)
    if commit.carry_tree:
        doc["carry_tree"] = True
    if commit.hold is not None:
        ttl = round(commit.hold.ttl * 1_000_000)
        doc["claim"] = {"owner": commit.hold.owner, "ttl": ttl}
    if commit.change is not None:
        details = _details(commit.change, blobs)
        if details:
            doc["details"] = details
    if commit.consumes:
        doc["consumes"] = commit.consumes
    if commit.sends:
        doc["sends"] = [send_doc(send, blobs) for send in commit.sends]
    if commit.starts:
        doc["starts"] = [_start(start, blobs, groups) for start in commit.starts]
    # A run that ended in another store has no open work.
    has_ended = commit.create is not None and _ended_at(commit.create) is not None
    if commit.tasks and not has_ended:
        doc["tasks"] = [task_doc(task, blobs) for task in commit.tasks]
    if commit.dead and not has_ended:
        doc["dead"] = [dead_doc(one, blobs) for one in commit.dead]
    if commit.finishes:
        doc["finishes"] = finishes_doc(commit.finishes)
    if commit.drops:
        doc["drops"] = [quote(id) for id in commit.drops]
    if commit.timers:
        doc["timers"] = [
            {"id": timer.id, "fire_at": to_micros(timer.fire_at)}
            for timer in commit.timers
            if not has_ended or timer.id in commit.fired
        ]
    if commit.fired:
        doc["fired"] = [quote(id) for id in commit.fired]
    if commit.facts:
        doc["facts"] = [{"hash": f.hash, "data": blobs.put(f.data)} for f in commit.facts]
    if commit.entries:
        doc["entries"] = [
            {
                "timestamp": None if e.timestamp == EPOCH else to_micros(e.timestamp),
                "id": quote(e.id),
                "step_id": quote(e.step_id),
                "step_type": quote(e.step_type),
                "action": quote(e.action),
                "duration_ms": e.duration_ms,
                "error": quote_or_none(e.error),
                "input": blobs.put(e.input),
                "output": blobs.put(e.output),
            }
            for e in commit.entries
        ]
    if commit.activities:
        doc["activities"] = [
            {
                "id": a.id,
                "name": quote(a.name),
                "status": a.status.value,
                "attempt": a.attempt,
                "started_at": micros_or_none(a.started_at),
                "ended_at": micros_or_none(a.ended_at),
                "error": quote_or_none(a.error),
                "input": blobs.put(a.input),
                "output": blobs.put(a.output),
            }
            for a in commit.activities
        ]
    if commit.snapshot is not None:
        doc["snapshot"] = blobs.put(commit.snapshot.pack())
    return doc or None


def _new_run(run: Run, blobs: Blobs) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": run.id,
        "uid": quote(run.uid),
        "workflow": quote(run.workflow),
        "parent": quote_or_none(run.parent),
        "status": run.status.value,
        "wait_kind": quote_or_none(run.wait_kind),
        "current_step": quote_or_none(run.current_step),
        "runnable_at": None if run.status.terminal else micros_or_none(run.runnable_at),
        "created_at": None if run.created_at == EPOCH else to_micros(run.created_at),
        "ended_at": _ended_at(run),
    }
    for name, default in _DEFAULTS.items():
        value = getattr(run, name)
        if value != default:
            record[name] = _detail(name, value, blobs)
    if run.attributes:
        record["hashes"] = _hashes(run.attributes)
    return record


def _ended_at(run: Run) -> int | None:
    """When an imported run ended."""
    return micros_or_none(run.ended_at) if run.status.terminal else None


_DEFAULTS: dict[str, Any] = {
    "version": "",
    "definition": "",
    "queue": "default",
    "priority": 0,
    "attributes": {},
    "input": None,
    "error": None,
    "recover_to": None,
    "rejected_by": None,
    "ctx": {},
    "result": None,
    "halt_data": None,
}
"""The fields of a record in the table `run_details`, which stores these values as NULL."""


def _details(change: Change, blobs: Blobs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _DEFAULTS:
        value = getattr(change, name)
        if value is not UNSET:
            found[name] = _detail(name, value, blobs)
    if "attributes" in found:
        found["hashes"] = _hashes(change.attributes)
    return found


def _detail(name: str, value: Any, blobs: Blobs) -> Any:
    if value is None:
        return None
    if name in ("version", "attributes"):
        return text(value)
    if name == "ctx":
        return blobs.put(
            msgspec.msgpack.encode({key: bytes(inner) for key, inner in value.items()})
        )
    if name in ("input", "result", "halt_data"):
        return blobs.put(value)
    return quote(value) if isinstance(value, str) else value


def _hashes(attributes: Any) -> list[str]:
    return [attribute_hash(name, value).hex() for name, value in attributes.items()]


def _start(start: Start, blobs: Blobs, groups: list[tuple[Event, ...]]) -> dict[str, Any]:
    groups.append(start.events)
    return {
        **_new_run(start.run, blobs),
        "life": len(groups),
        "events": len(start.events),
    }


def send_doc(send: Send, blobs: Blobs) -> dict[str, Any]:
    """An item and the run that it is sent to."""
    item = send.item
    return {
        "run": send.run_id,
        "uid": quote_or_none(send.uid),
        "id": item.id,
        "kind": item.kind,
        "name": quote(item.name),
        "sender": quote(item.sender),
        "data": blobs.put(item.data),
    }


def finishes_doc(finishes: Sequence[Claim], keeps: Sequence[Claim] = ()) -> list[dict[str, Any]]:
    """Claims on tasks to finish, and claims to keep without expiry."""
    return [
        {
            "i": i,
            "task_hash": task_hash(claim).hex(),
            "token": claim.token,
            "keep": i > len(finishes),
        }
        for i, claim in enumerate((*finishes, *keeps), 1)
    ]


def task_doc(task: Task, blobs: Blobs) -> dict[str, Any]:
    """A task."""
    return {
        "task_hash": task_hash(task).hex(),
        "queue": task.queue,
        "run_id": quote(task.run_id),
        "id": task.id,
        "uid": quote(task.uid),
        "kind": quote(task.kind),
        "name": quote(task.name),
        "step": quote(task.step),
        "definition": quote(task.definition),
        "priority": task.priority,
        "run_at": micros_or_none(task.run_at),
        "attempt": task.attempt,
        "metadata": text(task.metadata) if task.metadata else None,
        "input": blobs.put(task.input),
        "fair_key": task.key,
    }


def dead_doc(dead: DeadTask, blobs: Blobs) -> dict[str, Any]:
    """A dead task of another store."""
    enqueued = dead.task.enqueued_at
    return {
        **task_doc(dead.task, blobs),
        "enqueued_at": None if enqueued == EPOCH else to_micros(enqueued),
        "reason": quote(dead.reason),
        "died_at": to_micros(dead.died_at),
    }


def task_hash(task: Claim | Task) -> bytes:
    """The hash that identifies a task: of queue, run and id, none of which has a NUL after `quote`."""
    id = task.id if isinstance(task, Task) else task.task_id or ""
    parts = (quote(task.queue or ""), quote(task.run_id), quote(id))
    return hashlib.sha256("\0".join(parts).encode()).digest()


def attribute_hash(name: str, value: Attribute) -> bytes:
    """The hash of an attribute; values that a filter distinguishes have different hashes."""
    if isinstance(value, bool):
        tagged = f"b{value:d}"
    elif isinstance(value, int):
        tagged = f"i{value}"
    elif isinstance(value, float):
        # 0.0 and -0.0 are equal.
        tagged = f"f{value + 0.0!r}"
    else:
        tagged = f"s{value}"
    return hashlib.sha256(f"{len(name)} {name}{tagged}".encode()).digest()


def text(value: object) -> str:
    """JSON text of plain values."""
    return _json.encode(value).decode()


def micros_or_none(when: datetime | None) -> int | None:
    """A time as it is stored, or None."""
    return None if when is None else to_micros(when)


def pack_tasks(tasks: Sequence[Task]) -> tuple[Any, ...]:
    """The last parameters of `enqueue`."""
    blobs = Blobs()
    return text([task_doc(task, blobs) for task in tasks]), blobs
