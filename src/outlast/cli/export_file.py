"""Export files: a run with all its contents, and its children, as JSON lines.

The file is written and read as a stream, so that its size does not matter::

    {"outlast": "export", "version": 1, "root": …, "runs": …, "redacted": [ … ]}
    {"run": …}            the record; the lines up to the next one belong to it
    {"fact": …} {"event": …} {"item": …} {"receipts": […]} {"timer": …} {"task": …} {"dead": …}
    {"key": …} {"entry": …} {"activity": …} {"snapshot": …}
    {"end": {"lines": …, "sha256": …}}

The last line has the number of lines and their hash: a truncated, changed or newer file is refused as a
whole. A file contains what `outlast move` moves. `Redaction` replaces chosen fields of user values; a redacted
file has no snapshots, since a snapshot is opaque.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import cache
from typing import Any, BinaryIO, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Raw, Struct

from outlast.errors import StoreFault, Undecodable
from outlast.model.event import Event, payload_of
from outlast.model.json import DAMAGE, from_json, to_json
from outlast.model.run import Run
from outlast.model.run_contents import (
    Activity,
    BoundKey,
    DeadTask,
    Entry,
    Fact,
    Item,
    Snapshot,
    Task,
    Timer,
    hash_of,
)
from outlast.transfer import Bundle
from outlast.transfer.tombstone import DeadTaskRecord

VERSION = 1
LISTS: dict[str, tuple[str, type[Struct]]] = {
    "event": ("events", Event),
    "item": ("items", Item),
    "timer": ("timers", Timer),
    "task": ("tasks", Task),
    "entry": ("entries", Entry),
    "activity": ("activities", Activity),
}
"""Lines that occur many times per run: the name of the line, the field of the bundle, and the type."""


class ExportTooNew(StoreFault):
    """A newer version of outlast wrote the file."""


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
    # Redacted facts have new hashes, which the events that refer to them need.
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
            record = {"hash": fact.hash, "data": fact.data, "root": fact.root}
            yield msgspec.json.encode({"fact": record})
        for event in one.events:
            yield _line("event", redaction.event(event, hashes))
        yield from _many("item", map(redaction.value, one.items))
        if one.receipts:
            yield msgspec.json.encode({"receipts": one.receipts})
        yield from _many("timer", one.timers)
        yield from _many("task", map(redaction.value, one.tasks))
        for dead in one.dead:
            task = redaction.value(dead.task)
            yield _line("dead", DeadTaskRecord.of(DeadTask(task, dead.reason, dead.died_at)))
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
    """Read a file. A truncated, changed or newer file raises."""
    digest, runs = hashlib.sha256(), list[Bundle]()
    head: Head | None = None
    for lines, line in enumerate(file):
        where = f"line {lines + 1} of {name}"
        if head is None:
            head = _head(line, name)
        elif line.startswith(b'{"end":'):
            _check_end(line, lines, digest.hexdigest(), name)
            if file.read(1) or len(runs) != head.runs or not runs:
                raise Undecodable(
                    f"{name} does not contain what its first line says: it was changed. Export the run again"
                )
            return head, runs
        else:
            _add(runs, line, where)
        digest.update(line)
        if progress is not None:
            progress(lines)
    raise Undecodable(
        f"{name} is empty: export the run again"
        if head is None
        else f"{name} is truncated: export the run again, or copy the file again"
    )


def _line(kind: str, value: Struct) -> bytes:
    return b'{"' + kind.encode() + b'":' + to_json(value) + b"}"


def _head(line: bytes, name: str) -> Head:
    try:
        head = msgspec.json.decode(line, type=Head)
    except DAMAGE as error:
        raise Undecodable(
            f"{name} is not an export file: create one with `outlast export`"
        ) from error
    if head.outlast != "export":
        raise Undecodable(f"{name} is not an export file: create one with `outlast export`")
    if head.version > VERSION:
        raise ExportTooNew(
            f"{name} has version {head.version}, and this outlast reads {VERSION}: a newer version wrote "
            "it. Upgrade outlast here"
        )
    return head


def _check_end(line: bytes, lines: int, digest: str, name: str) -> None:
    try:
        end: dict[str, Any] = msgspec.json.decode(line)["end"]
    except DAMAGE as error:
        raise Undecodable(f"{name} is truncated: copy the file again") from error
    if end.get("lines") != lines or end.get("sha256") != digest:
        raise Undecodable(
            f"{name} was changed after it was written: the hash of its lines differs from the one in its "
            "last line. Export the run again"
        )


def _add(runs: list[Bundle], line: bytes, where: str) -> None:
    try:
        [(kind, raw)] = msgspec.json.decode(line, type=dict[str, Raw]).items()
        if kind == "run":
            runs.append(Bundle(from_json(raw, Run, where=where), []))
        else:
            _give(runs[-1], kind, raw, where)
    except (*DAMAGE, ValueError, TypeError, KeyError, IndexError) as error:
        raise Undecodable(
            f"{where} cannot be decoded: the file was truncated or changed"
        ) from error


def _give(bundle: Bundle, kind: str, raw: Raw, where: str) -> None:
    if kind == "fact":
        fact = msgspec.json.decode(raw, type=Fact)
        if hash_of(fact.data) != fact.hash:
            raise Undecodable(f"{where}: the hash of a fact differs from its name")
        bundle.facts.append(fact)
    elif kind == "receipts":
        bundle.receipts = msgspec.json.decode(raw, type=tuple[str, ...])
    elif kind == "dead":
        bundle.dead.append(from_json(raw, DeadTaskRecord, where=where).read())
    elif kind == "key":
        bundle.keys += (BoundKey(**msgspec.json.decode(raw, type=dict[str, str])),)
    elif kind == "snapshot":
        bundle.snapshot = from_json(raw, Snapshot, where=where)
    else:
        field, type = LISTS[kind]
        getattr(bundle, field).append(from_json(raw, type, where=where))


S = TypeVar("S", bound=Struct)
BLOT = "[redacted]"


class Redaction:
    """Replaces every field with one of these names, at any depth, in user values: inputs, outputs,
    signals, published values, attributes. Names are compared without case."""

    def __init__(self, names: tuple[str, ...] = ()) -> None:
        self.names = {name.casefold() for name in names}

    def run(self, run: Run) -> Run:
        """The redacted record of a run."""
        if not self.names:
            return run
        safe = self._struct(run)
        return msgspec.structs.replace(
            safe,
            ctx={
                name: Raw(b'"[redacted]"') if self._kept(name) else self._raw(value)
                for name, value in run.ctx.items()
            },
            attributes={
                name: BLOT if self._kept(name) else value for name, value in run.attributes.items()
            },
        )

    def event(self, event: Event, hashes: dict[str, str]) -> Event:
        """The redacted event; references to redacted facts get the new hash."""
        if not self.names:
            return event
        try:
            payload = payload_of(event)
        except Undecodable:
            data = self._raw(event.data)
        else:
            data = Raw(to_json(self._struct(payload)))
        text = bytes(data)
        for old, new in hashes.items():
            text = text.replace(old.encode(), new.encode())
        output = None if event.output is None else self._raw(event.output)
        return msgspec.structs.replace(event, data=Raw(text), output=output)

    def fact(self, fact: Fact) -> Fact:
        """The redacted fact, under its new hash."""
        if not self.names:
            return fact
        return Fact.of(bytes(self._raw(Raw(fact.data))), fact.root)

    def value(self, value: S) -> S:
        """The redacted inbox item, task, audit line or activity state."""
        return self._struct(value)

    def _struct(self, value: S) -> S:
        changes: dict[str, Any] = {}
        for name in _raw_fields(type(value)) if self.names else ():
            old = getattr(value, name)
            if isinstance(old, Raw):
                changes[name] = self._raw(old)
            elif isinstance(old, list):
                changes[name] = [self._raw(one) if isinstance(one, Raw) else one for one in old]
        return msgspec.structs.replace(value, **changes)

    def _raw(self, raw: Raw) -> Raw:
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return Raw(b'"[redacted: not JSON]"')
        return Raw(msgspec.json.encode(self._value(value)))

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name: BLOT if self._kept(name) else self._value(inner)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self._value(inner) for inner in value]
        return value

    def _kept(self, name: str) -> bool:
        return name.casefold() in self.names


@cache
def _raw_fields(type: type[Struct]) -> tuple[str, ...]:
    """The fields that contain user values."""
    return tuple(
        name
        for name, hint in get_type_hints(type).items()
        if name in type.__struct_fields__ and (hint is Raw or Raw in get_args(hint))
    )
