"""Digest: the part of a history that a replay still needs, and the snapshot that is made of it.

What is inside a finished scope or a past iteration of a loop is never run again, and the input of a
step is only looked at when it starts; so a replay needs less than all of history. The digest is
kept while the run is in memory, and written as a snapshot when what has come since the last one
outgrows it, or when a scope has ended that was most of it: a long run writes its digest a few times,
not once per event. A snapshot saves reading.
It is a cache: one that is missing, cannot be read, or would be too large to be stored costs a look
at the whole history, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from outlast.engine.past import Past
from outlast.engine.reading import patiently
from outlast.engine.residency import USUAL, Residency
from outlast.errors import Undecodable
from outlast.model.checks import MAX_PAYLOAD_BYTES
from outlast.model.event import Event, EventType
from outlast.model.run import Run
from outlast.model.snapshot import Snapshot
from outlast.model.times import from_micros, to_micros
from outlast.model.wire import to_json
from outlast.ports.capability import Capability
from outlast.ports.store import Store

SCOPED = {EventType.SCOPE_STARTED, EventType.SCOPE_COMPLETED, EventType.SCOPE_FAILED}

CODEC = "digest-2"
"""In ``digest-1`` events had no sequence: those snapshots are not read."""


class Digest:
    """The events that a replay of one run needs, up to a sequence."""

    def __init__(
        self,
        events: Sequence[Event] = (),
        *,
        snapshotted: int = 0,
        writes: bool = False,
        residency: Residency = USUAL,
    ) -> None:
        self.events: list[Event] = []
        self._writes = writes
        self._residency = residency
        self._scopes: dict[str, int] = {}  # where they begin
        self._over = 0  # events inside of scopes that have ended
        self._wait_after(snapshotted)
        self.add(events)

    def add(self, events: Sequence[Event]) -> None:
        """These have become part of the history, numbered or not."""
        for event in events:
            if event.type in SCOPED:
                self._note_scope(event)
            self.events.append(event)

    def _note_scope(self, event: Event) -> None:
        if event.type == EventType.SCOPE_STARTED:
            self._scopes[event.step_name] = len(self.events)
        else:
            begun = self._scopes.pop(event.step_name, len(self.events))
            self._over += len(self.events) - begun

    @property
    def is_due(self) -> bool:
        """Whether it has outgrown its last snapshot, or most of it is over, on a store that keeps
        snapshots."""
        return self._writes and (
            len(self.events) >= self._due_at
            or (self._over >= self._residency.snapshot_after and 2 * self._over >= len(self.events))
        )

    def snapshot(self, run: Run, sequence: int, now: datetime) -> Snapshot | None:
        """What is needed of the history up to `sequence`; the rest is forgotten here too. None if
        no store would take it: then there is none until as much again has come."""
        self._number(sequence)
        self.fold()
        self._wait_after(len(self.events))
        data = msgspec.json.encode(list(map(_line, self.events)))
        if len(data) > MAX_PAYLOAD_BYTES:
            return None
        return Snapshot(
            run_id=run.id,
            sequence=sequence,
            data=data,
            definition=run.definition,
            codec=CODEC,
            created_at=now,
        )

    def _wait_after(self, snapshotted: int) -> None:
        self._due_at = self._residency.due_after(snapshotted)

    def fold(self) -> None:
        """Forget what is inside something that is finished."""
        past = Past(self.events)
        needed = [event for event in self.events if not past.skips(event)]
        self.events, self._over = [], 0
        self._scopes.clear()
        self.add(needed)

    def _number(self, last: int) -> None:
        """Give those that came without one their numbers: they came one after the other, up to `last`."""
        first = last - len(self.events) + 1
        self.events = [
            event if event.sequence else msgspec.structs.replace(event, sequence=first + position)
            for position, event in enumerate(self.events)
        ]


def is_short(run: Run, residency: Residency) -> bool:
    """Whether all that a replay of `run` needs is a history that is read in one go."""
    return 0 < run.sequence < residency.snapshot_after


async def load_digest(
    store: Store,
    run: Run,
    history: Sequence[Event] | None = None,
    *,
    patience: float,
    residency: Residency = USUAL,
) -> Digest:
    """What a replay of `run` needs: its snapshot and the events after it, or all events. Nothing
    is read for a run that has no history yet, or whose whole `history` was read before. A call may
    take `patience` seconds at first."""

    async def after(sequence: int) -> list[Event]:
        return await patiently(
            store.clock,
            lambda seconds: store.history(run.id, after=sequence, timeout=seconds),
            patience,
        )

    writes = Capability.SNAPSHOTS in store.capabilities
    if writes and run.sequence >= residency.snapshot_after:
        try:
            snapshot = await patiently(
                store.clock,
                lambda seconds: store.find_snapshot(run.id, timeout=seconds),
                patience,
            )
            if snapshot is not None and snapshot.codec == CODEC:
                known = read_snapshot(snapshot)
                digest = Digest(known, snapshotted=len(known), writes=True, residency=residency)
                digest.add(await after(snapshot.sequence))
                return digest
        except Undecodable:
            pass  # a cache: the history has it all
    if history is None:
        history = await after(0) if run.sequence else ()
    return Digest(history, writes=writes, residency=residency)


class _Line(Struct, omit_defaults=True):
    """An event in short: t type, k key, a at, n number, d data, o output."""

    t: str
    a: int
    n: int = 0
    k: str = ""
    d: Raw = Raw(b"{}")
    o: list[Raw] = []


class _Attempt(Struct, omit_defaults=True):
    """What a replay needs of ``step.started``: all but the input, which may be large."""

    attempt: int = 0
    alone: bool = False


_DECODER = msgspec.json.Decoder(list[_Line])
_ATTEMPT = msgspec.json.Decoder(_Attempt)


def _line(event: Event) -> _Line:
    data = event.data
    if event.type == EventType.STEP_STARTED:
        data = Raw(to_json(_ATTEMPT.decode(data)))
    return _Line(
        t=event.type,
        a=to_micros(event.timestamp),
        n=event.sequence,
        k=event.step_name,
        d=data,
        o=[] if event.output is None else [event.output],
    )


def read_snapshot(snapshot: Snapshot) -> list[Event]:
    """The events that a snapshot holds."""
    try:
        lines = _DECODER.decode(snapshot.data)
    except msgspec.DecodeError as error:
        raise Undecodable(f"the snapshot of run {snapshot.run_id!r} is damaged: {error}") from error
    return [
        Event(
            type=line.t,
            run_id=snapshot.run_id,
            id="",
            sequence=line.n,
            step_name=line.k,
            data=line.d,
            output=line.o[0] if line.o else None,
            timestamp=from_micros(line.a),
        )
        for line in lines
    ]
