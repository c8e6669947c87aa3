"""Runs and events as programs get them: one JSON object each, times in UTC."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.model.event import Event
from outlast.model.run import Run
from outlast.query.outline import Part

FIELDS = (
    "id", "workflow", "status", "created_at", "updated_at", "ended_at", "wait_kind", "current_step",
    "error", "attributes", "parent", "queue", "owner", "claimed_until", "runnable_at", "sequence",
    "version", "uid",
)  # fmt: skip
VALUES = ("input", "result", "ctx", "halt_data", "recover_to")


def run_record(run: Run, *, values: bool = False) -> dict[str, Any]:
    """A run; with its `values` also what it was given and what it gave."""
    names = (*FIELDS, *VALUES) if values else FIELDS
    return {name: getattr(run, name) for name in names}


def event_record(event: Event) -> dict[str, Any]:
    """An event."""
    return {
        "run_id": event.run_id,
        "sequence": event.sequence,
        "type": event.type,
        "step": event.step_name,
        "timestamp": event.timestamp,
        "data": event.data,
        "output": event.output,
    }


def part_record(part: Part) -> dict[str, Any]:
    """A part of a run, with those below it."""
    record: dict[str, Any] = {
        "key": part.key,
        "kind": part.kind,
        "name": part.name,
        "status": part.status,
        "started_at": part.started_at,
        "ended_at": part.ended_at,
        "until": part.until,
        "input": part.input,
        "output": part.output,
        "error": part.error,
        "note": part.note,
        "child_id": part.child_id,
        "attempts": [vars(attempt) for attempt in part.attempts],
        "parts": [part_record(below) for below in part.parts],
    }
    return {name: value for name, value in record.items() if value not in (None, "", [])}


def as_text(value: msgspec.Raw | None) -> str:
    """A recorded value as it stands in the store."""
    return "" if value is None else bytes(value).decode("utf-8", "replace")
