"""Runs, events and outlines: as JSON records for programs, and as a tree for people."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from outlast.cli.output import STATUS_COLOURS, Output, length, neutral, shortened, width_of
from outlast.codecs.untyped import without_types
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
    """A run; with `values` also its input and its result."""
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
    """A part of a run, with its sub-parts."""
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
        "frames": part.frames,
        "note": part.note,
        "child_id": part.child_id,
        "rejected": part.rejected,
        "attempts": [vars(attempt) for attempt in part.attempts],
        "parts": [part_record(below) for below in part.parts],
    }
    return {name: value for name, value in record.items() if value not in (None, "", [])}


def as_text(value: msgspec.Raw | None) -> str:
    """A recorded value as stored, without the table of its types."""
    return "" if value is None else bytes(without_types(value)).decode("utf-8", "replace")


MARKS = {
    "completed": "✓",
    "failed": "✗",
    "running": "▶",
    "waiting": "…",
    "retrying": "↻",
    "abandoned": "–",
}
BAR = 24


class Drawn(NamedTuple):
    """A part, the prefix of its line, and the prefix of the lines below it."""

    part: Part
    lead: str
    below: str


def draw_tree(out: Output, run: Run, parts: list[Part], *, full: bool) -> None:
    """Print the tree of a run."""
    lines = list(_lines(parts, ""))
    names = [f"{line.lead}{MARKS.get(line.part.status, '?')} {_name(line.part)}" for line in lines]
    end = run.ended_at or out.now
    bar = BAR if out.width >= 90 else 0
    widest = max((width_of(name) for name in names), default=0)
    room = max(min(widest, out.width - bar - 12), 12)
    for line, name in zip(lines, names, strict=True):
        part = line.part
        text = shortened(name, room)
        took = _took(part, end)
        head = out.styled(text, STATUS_COLOURS.get(part.status)) + " " * (room - width_of(text))
        drawn = f"  {_bar(part, run.created_at, end)}" if bar else ""
        about = _about(part, full=full)
        used = room + 10 + (bar + 2 if bar else 0)
        rest = f"  {about if full else out.short(about, used + 2)}" if about else ""
        if full or out.width - used >= 14:
            out.line(f"{head}  {took:>8}{drawn}{rest}".rstrip())
        else:
            out.line(f"{head}  {took:>8}".rstrip())
        for note in _notes(part):
            out.line(
                f"{line.below}    {note if full else out.short(note, len(line.below) + 4)}", "red"
            )


def _lines(parts: list[Part], indent: str) -> Iterator[Drawn]:
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        lead, deeper = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield Drawn(part, indent + lead, indent + deeper)
        yield from _lines(part.parts, indent + deeper)


def _name(part: Part) -> str:
    name = neutral(part.name)
    if part.kind == "step":
        return name
    if name.partition(":")[0] == part.kind or part.kind == name:
        return name.replace(":", " ", 1)
    if part.kind == "task":
        return f"task {name}"
    if part.kind == "child":
        return f"child {neutral(part.child_id or name)}"
    return f"{part.kind} {name}"


def _took(part: Part, end: datetime) -> str:
    if part.started_at is None:
        return ""
    return length(((part.ended_at or end) - part.started_at).total_seconds())


def _about(part: Part, *, full: bool) -> str:
    """Input and output of a part, in short."""
    parts = [neutral(text) for text in (part.note, *part.rejected) if text]
    if len(part.attempts) > 1:
        parts.append(f"{len(part.attempts)} attempts")
    given, gave = neutral(as_text(part.input)), neutral(as_text(part.output))
    if not full:
        given, gave = shortened(given, 40), shortened(gave, 40)
    if given and given not in ("null", "{}"):
        parts.append(given)
    if gave and gave != "null":
        parts.append(f"→ {gave}")
    return "  ".join(parts)


def _notes(part: Part) -> list[str]:
    """The errors of a part: by attempt, if there were several, each with the user's frames, innermost
    first. Frames that equal those of the previous attempt are not repeated."""
    failed = [attempt for attempt in part.attempts if attempt.error]
    if not failed:
        lines = [neutral(f"  at {frame}") for frame in reversed(part.frames)]
        return [neutral(part.error), *lines] if part.error else []
    parts, shown = list[str](), list[str]()
    for one in failed:
        number = f"attempt {one.number}: " if len(part.attempts) > 1 else ""
        parts.append(neutral(f"{number}{one.error}"))
        if one.frames != shown:
            parts += [neutral(f"  at {frame}") for frame in reversed(one.frames)]
            shown = one.frames
    return parts


def _bar(part: Part, start: datetime, end: datetime) -> str:
    """A bar that shows when a part ran, within the time of its run."""
    whole = (end - start).total_seconds()
    if part.started_at is None or whole <= 0:
        return " " * BAR
    began = min(max((part.started_at - start).total_seconds() / whole, 0), 1)
    ended = min(max(((part.ended_at or end) - start).total_seconds() / whole, began), 1)
    first = min(int(began * BAR), BAR - 1)
    cells = max(round(ended * BAR) - first, 1)
    return (" " * first + "█" * cells)[:BAR].ljust(BAR, "·").replace(" ", "·")
