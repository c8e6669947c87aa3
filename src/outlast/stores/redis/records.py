"""The record of a run on its way into a hash: the few fields that scripts look at, and the cold ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from outlast.model.run import Attribute, Change, Run
from outlast.model.times import EPOCH
from outlast.stores.redis.keys import framed
from outlast.stores.redis.packing import Packed, blob, micros, pack, payload

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
"""Fields of the record that no script looks into. A default is no field at all."""


def tag(name: str, value: Attribute) -> bytes:
    """An attribute as it is filed. True is not 1, and 1 is not 1.0."""
    return framed(name) + text(value + 0.0 if type(value) is float else value)


def pack_tags(attributes: dict[str, Attribute]) -> bytes:
    """All attributes as they are filed."""
    return pack([blob(tag(name, value)) for name, value in attributes.items()])


def pack_run(run: Run) -> Packed:
    """A record that begins a life."""
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
    """What alters a record."""
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
