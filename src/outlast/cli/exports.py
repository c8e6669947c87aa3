"""Export: a run with all it owns, and its children, as one file, and back.

One JSON object a line, so that a file of any size is written and read in passing::

    {"outlast": "export", "version": 1, "root": …, "runs": …, "redacted": [ … ]}
    {"run": …}            the record; all that follows is its, until the next
    {"fact": …} {"event": …} {"item": …} {"receipts": […]} {"timer": …} {"task": …} {"dead": …}
    {"key": …} {"entry": …} {"activity": …} {"snapshot": …}
    {"end": {"lines": …, "sha256": …}}

The last line says how many lines there are and what they hash to: a file that was cut off or
changed is refused as a whole, and so is one of a newer version. What travels is what `outlast move`
moves; a snapshot, being a cache whose inside nobody can look into, is left out of a redacted file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from outlast.cli.redaction import Redaction
from outlast.errors import StoreFault, Undecodable
from outlast.model.event import Event
from outlast.model.inbox import Item
from outlast.model.json import DAMAGE, from_json, to_json
from outlast.model.run import Run
from outlast.model.run_contents import Activity, BoundKey, Entry, Fact, Timer, hash_of
from outlast.model.snapshot import Snapshot
from outlast.model.task import DeadTask, Task
from outlast.transfer import Bundle
from outlast.transfer.tombstone import Tombstone

VERSION = 1
LISTS: dict[str, tuple[str, type[Struct]]] = {
    "event": ("events", Event),
    "item": ("items", Item),
    "timer": ("timers", Timer),
    "task": ("tasks", Task),
    "entry": ("entries", Entry),
    "activity": ("activities", Activity),
}
"""What a run has many of: by the word of its lines, the field of the cargo and the type."""


class ExportTooNew(StoreFault):
    """The file was written by a newer outlast."""


class Head(Struct, frozen=True, kw_only=True):
    """The first line of a file."""

    outlast: str
    version: int
    root: str = ""
    runs: int = 0
    made_at: datetime | None = None
    redacted: list[str] = []


def write(file: BinaryIO, family: list[Bundle], redaction: Redaction, made_at: datetime) -> None:
    """Write a family, its head first."""
    digest, lines = hashlib.sha256(), 0
    head = Head(
        outlast="export",
        version=VERSION,
        root=family[0].run.id,
        runs=len(family),
        made_at=made_at,
        redacted=sorted(redaction.names),
    )
    for line in _lines(head, family, redaction):
        lines += 1
        digest.update(line + b"\n")
        file.write(line + b"\n")
    end = {"lines": lines, "sha256": digest.hexdigest()}
    file.write(msgspec.json.encode({"end": end}) + b"\n")


def _lines(head: Head, family: list[Bundle], redaction: Redaction) -> Iterator[bytes]:
    yield msgspec.json.encode(head)
    # Facts that are blotted out have another name: whoever refers to them has to know it.
    facts = [[redaction.fact(fact) for fact in one.facts] for one in family]
    hashes = {
        old.hash: new.hash
        for one, safe in zip(family, facts, strict=True)
        for old, new in zip(one.facts, safe, strict=True)
        if old.hash != new.hash
    }
    for one, safe in zip(family, facts, strict=True):
        yield _line("run", redaction.run(one.run))
        for fact in safe:
            told = {"hash": fact.hash, "data": fact.data, "root": fact.root}
            yield msgspec.json.encode({"fact": told})
        for event in one.events:
            yield _line("event", redaction.event(event, hashes))
        yield from _many("item", map(redaction.value, one.items))
        if one.receipts:
            yield msgspec.json.encode({"receipts": one.receipts})
        yield from _many("timer", one.timers)
        yield from _many("task", map(redaction.value, one.tasks))
        for dead in one.dead:
            task = redaction.value(dead.task)
            yield _line("dead", Tombstone.of(DeadTask(task, dead.reason, dead.died_at)))
        for key in one.keys:
            yield msgspec.json.encode({"key": key._asdict()})
        yield from _many("entry", map(redaction.value, one.entries))
        yield from _many("activity", map(redaction.value, one.activities))
        if one.snapshot is not None and not redaction.names:
            yield _line("snapshot", one.snapshot)


def _many(kind: str, values: Iterable[Struct]) -> Iterator[bytes]:
    return (_line(kind, value) for value in values)


def read(
    file: BinaryIO, name: str, progress: Callable[[int], None] | None = None
) -> tuple[Head, list[Bundle]]:
    """Read a file; one that is not whole, not unchanged, or newer than this is refused."""
    digest, runs = hashlib.sha256(), list[Bundle]()
    head: Head | None = None
    for lines, line in enumerate(file):
        where = f"line {lines + 1} of {name}"
        if head is None:
            head = _head(line, name)
        elif line.startswith(b'{"end":'):
            _check_end(line, lines, digest.hexdigest(), name)
            if file.read(1) or len(runs) != head.runs or not runs:
                raise Undecodable(f"{name} does not hold what its first line says: it was changed")
            return head, runs
        else:
            _add(runs, line, where)
        digest.update(line)
        if progress is not None:
            progress(lines)
    raise Undecodable(
        f"{name} is empty: export the run again"
        if head is None
        else f"{name} ends in the middle: it was cut off. Export the run again, or copy it again"
    )


def _line(kind: str, value: Struct) -> bytes:
    return b'{"' + kind.encode() + b'":' + to_json(value) + b"}"


def _head(line: bytes, name: str) -> Head:
    try:
        head = msgspec.json.decode(line, type=Head)
    except DAMAGE as error:
        raise Undecodable(f"{name} is not a file of `outlast export`") from error
    if head.outlast != "export":
        raise Undecodable(f"{name} is not a file of `outlast export`")
    if head.version > VERSION:
        raise ExportTooNew(
            f"{name} has version {head.version}, and this outlast reads {VERSION}: a newer one has "
            "written it. Upgrade outlast here"
        )
    return head


def _check_end(line: bytes, lines: int, digest: str, name: str) -> None:
    try:
        end: dict[str, Any] = msgspec.json.decode(line)["end"]
    except DAMAGE as error:
        raise Undecodable(f"{name} ends in the middle: it was cut off") from error
    if end.get("lines") != lines or end.get("sha256") != digest:
        raise Undecodable(
            f"{name} was changed after it was written: its lines do not hash to what its last line "
            "says. Export the run again"
        )


def _add(runs: list[Bundle], line: bytes, where: str) -> None:
    try:
        [(kind, raw)] = msgspec.json.decode(line, type=dict[str, Raw]).items()
        if kind == "run":
            runs.append(Bundle(from_json(raw, Run, where=where), []))
        else:
            _give(runs[-1], kind, raw, where)
    except (*DAMAGE, ValueError, TypeError, KeyError, IndexError) as error:
        raise Undecodable(f"{where} cannot be read: the file was cut off or changed") from error


def _give(cargo: Bundle, kind: str, raw: Raw, where: str) -> None:
    if kind == "fact":
        fact = msgspec.json.decode(raw, type=Fact)
        if hash_of(fact.data) != fact.hash:
            raise Undecodable(f"{where}: a fact does not hash to its name")
        cargo.facts.append(fact)
    elif kind == "receipts":
        cargo.receipts = msgspec.json.decode(raw, type=tuple[str, ...])
    elif kind == "dead":
        cargo.dead.append(from_json(raw, Tombstone, where=where).read())
    elif kind == "key":
        cargo.keys += (BoundKey(**msgspec.json.decode(raw, type=dict[str, str])),)
    elif kind == "snapshot":
        cargo.snapshot = from_json(raw, Snapshot, where=where)
    else:
        field, type = LISTS[kind]
        getattr(cargo, field).append(from_json(raw, type, where=where))
