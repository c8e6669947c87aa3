"""Export: a run with its history, facts, inbox and children as one file, and back.

One JSON object a line, so that a file of any size is written and read in passing::

    {"outlast": "export", "version": 1, "root": …, "runs": …, "redacted": [ … ]}
    {"run": …}            the record; all that follows is its, until the next
    {"event": …} {"fact": …} {"item": …} {"timer": …} {"entry": …} {"activity": …}
    {"end": {"lines": …, "sha256": …}}

The last line says how many lines there are and what they hash to: a file that was cut off or
changed is refused as a whole, and so is one of a newer version. Snapshots are left out, being a
cache; so are tasks in queues.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw, Struct

from outlast.cli.redaction import Redaction
from outlast.errors import Conflict, StoreFault, Undecodable
from outlast.model.activity import Activity
from outlast.model.entry import Entry
from outlast.model.event import Event, EventType
from outlast.model.fact import Fact, hash_of
from outlast.model.ids import root_of
from outlast.model.inbox import Item
from outlast.model.query import RunQuery
from outlast.model.run import Run
from outlast.model.timer import Timer
from outlast.model.wire import DAMAGE, from_json, to_json
from outlast.ports.capability import Capability
from outlast.ports.store import Store

VERSION = 1
TRIES = 5
KINDS: dict[str, type[Struct]] = {
    "run": Run,
    "event": Event,
    "item": Item,
    "timer": Timer,
    "entry": Entry,
    "activity": Activity,
}


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


@dataclass
class Exported:
    """A run and all that is its."""

    run: Run
    events: list[Event] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)


# -- from a store -------------------------------------------------------------------------------


async def tree_of(store: Store, run: Run) -> AsyncIterator[Exported]:
    """A run and its descendants, each as it was at one moment."""
    yield await _whole(store, run.id)
    async for child in store.find_all(RunQuery(parent=run.id)):
        async for one in tree_of(store, child):
            yield one


async def _whole(store: Store, run_id: str) -> Exported:
    can = store.capabilities
    run = again = await store.get(run_id)
    for _ in range(TRIES):
        run = again
        found = Exported(run, events=await store.history(run_id))
        found.facts = [fact async for fact in _facts(store, run, found.events)]
        if Capability.INBOX in can:
            found.items = await store.inbox(run_id, limit=10_000)
        if Capability.TIMERS in can:
            found.timers = await store.timers(run_id)
        if Capability.ENTRIES in can:
            found.entries = await store.entries(run_id)
        if Capability.ACTIVITIES in can:
            found.activities = await store.activities(run_id)
        again = await store.get(run_id)
        if (again.uid, again.revision, again.inbox) == (run.uid, run.revision, run.inbox):
            return found
    raise Conflict(run_id, expected=run.revision, actual=again.revision, what="revision")


async def _facts(store: Store, run: Run, events: Iterable[Event]) -> AsyncIterator[Fact]:
    if Capability.FACTS not in store.capabilities:
        return
    for event in events:
        for hash in _segments(event):
            fact = await store.find_fact(hash, root=root_of(run.id))
            if fact is None:
                raise Undecodable(f"fact {hash} of event {event.sequence} of {run.id!r} is missing")
            yield fact


def _segments(event: Event) -> list[str]:
    """The facts that the results of a large map are in."""
    if event.type != EventType.MAP_COMPLETED or b'"~segments"' not in bytes(event.data):
        return []
    results = msgspec.json.decode(event.data).get("results")
    return list(results["~segments"]) if isinstance(results, dict) else []


# -- to a file and back ---------------------------------------------------------------------------


def write(file: BinaryIO, runs: list[Exported], redaction: Redaction, made_at: datetime) -> None:
    """Write runs, the root first."""
    digest, lines = hashlib.sha256(), 0

    def put(line: bytes) -> None:
        nonlocal lines
        lines += 1
        digest.update(line + b"\n")
        file.write(line + b"\n")

    head = Head(
        outlast="export",
        version=VERSION,
        root=runs[0].run.id,
        runs=len(runs),
        made_at=made_at,
        redacted=sorted(redaction.names),
    )
    put(msgspec.json.encode(head))
    for one in runs:
        put(_line("run", redaction.run(one.run)))
        hashes = {}
        for fact in one.facts:
            safe = redaction.fact(fact)
            hashes[fact.hash] = safe.hash
            put(
                msgspec.json.encode(
                    {"fact": {"hash": safe.hash, "data": safe.data, "root": fact.root}}
                )
            )
        for event in one.events:
            put(_line("event", redaction.event(event, hashes)))
        owned: list[tuple[str, Iterable[Struct]]] = [
            ("item", [redaction.item(item) for item in one.items]),
            ("timer", one.timers),
            ("entry", [redaction.entry(entry) for entry in one.entries]),
            ("activity", [redaction.activity(activity) for activity in one.activities]),
        ]
        for kind, values in owned:
            for value in values:
                put(_line(kind, value))
    end = {"lines": lines, "sha256": digest.hexdigest()}
    file.write(msgspec.json.encode({"end": end}) + b"\n")


def read(file: BinaryIO, name: str) -> tuple[Head, list[Exported]]:
    """Read a file; one that is not whole, not unchanged, or newer than this is refused."""
    digest, runs = hashlib.sha256(), list[Exported]()
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


def _add(runs: list[Exported], line: bytes, where: str) -> None:
    try:
        [(kind, raw)] = msgspec.json.decode(line, type=dict[str, Raw]).items()
        if kind == "fact":
            fact = msgspec.json.decode(raw, type=Fact)
            if hash_of(fact.data) != fact.hash:
                raise Undecodable(f"{where}: a fact does not hash to its name")
            runs[-1].facts.append(fact)
            return
        value = from_json(raw, KINDS[kind], where=where)
        if isinstance(value, Run):
            runs.append(Exported(value))
        else:
            owned = {"entry": "entries", "activity": "activities"}.get(kind, f"{kind}s")
            getattr(runs[-1], owned).append(value)
    except (*DAMAGE, ValueError, KeyError, IndexError) as error:
        raise Undecodable(f"{where} cannot be read: the file was cut off or changed") from error
