"""ReplayLog: the part of a history that a replay still needs, and the snapshot that is made of it.

What is inside a finished scope or a past iteration of a loop is never run again, and the input of a
step is only looked at when it starts; so a replay needs less than all of history. The digest is
kept while the run is in memory, and written as a snapshot when what has come since the last one
outgrows it, or when a scope has ended that was most of it: a long run writes its digest a few times,
not once per event. A snapshot saves reading.
It is a cache: one that is missing, cannot be read, or would be too large to be stored costs a look
at the whole history, and nothing else.

HistoryIndex: what a replay needs to know of history before it gets there.

Most of history is met event by event. But a choice is asked for and used in the same breath, and
the inside of a finished scope or of a finished loop iteration is not run again: so these are looked
up ahead, by key. Where something inside may have to be undone later, it is run again all the same,
because only the code knows how: a scope as a whole, a loop from the iteration before it on. What was
skipped once is skipped for ever, because a snapshot no longer has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from outlast.engine.replay.eviction import USUAL, ResidencyPolicy
from outlast.engine.runner.backoff import patiently
from outlast.errors import Undecodable
from outlast.model.event import Event, EventType
from outlast.model.event_data import payload_of
from outlast.model.json import to_json
from outlast.model.payloads import BranchEvaluated, LoopIterated, ScopeCompleted, ScopeFailedEvent
from outlast.model.run import Run
from outlast.model.snapshot import Snapshot
from outlast.model.times import from_micros, to_micros
from outlast.model.validation import MAX_PAYLOAD_BYTES
from outlast.ports.capabilities import Capability
from outlast.ports.store import Store

SCOPED = {EventType.SCOPE_STARTED, EventType.SCOPE_COMPLETED, EventType.SCOPE_FAILED}

CODEC = "digest-2"
"""In ``digest-1`` events had no sequence: those snapshots are not read."""


class ReplayLog:
    """The events that a replay of one run needs, up to a sequence."""

    def __init__(
        self,
        events: Sequence[Event] = (),
        *,
        snapshotted: int = 0,
        writes: bool = False,
        residency: ResidencyPolicy = USUAL,
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
        past = HistoryIndex(self.events)
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


def is_short(run: Run, residency: ResidencyPolicy) -> bool:
    """Whether all that a replay of `run` needs is a history that is read in one go."""
    return 0 < run.sequence < residency.snapshot_after


async def load_replay_log(
    store: Store,
    run: Run,
    history: Sequence[Event] | None = None,
    *,
    patience: float,
    residency: ResidencyPolicy = USUAL,
) -> ReplayLog:
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
                digest = ReplayLog(known, snapshotted=len(known), writes=True, residency=residency)
                digest.add(await after(snapshot.sequence))
                return digest
        except Undecodable:
            pass  # a cache: the history has it all
    if history is None:
        history = await after(0) if run.sequence else ()
    return ReplayLog(history, writes=writes, residency=residency)


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


_CLOSED = {EventType.SCOPE_COMPLETED, EventType.SCOPE_FAILED}


class HistoryIndex:
    """An index of a history. Empty for a run that has none."""

    def __init__(self, events: Sequence[Event] = ()) -> None:
        self.remaining = len(events)
        self.choices: dict[str, str] = {}
        self.closed_scopes: set[str] = set()
        self.iterations: dict[str, int] = {}
        for event in events:
            if event.type == EventType.BRANCH_EVALUATED:
                payload = payload_of(event)
                assert isinstance(payload, BranchEvaluated)
                self.choices[event.step_name] = payload.choice
            elif event.type in _CLOSED:
                payload = payload_of(event)
                assert isinstance(payload, ScopeCompleted | ScopeFailedEvent)
                if not payload.undoable:
                    self.closed_scopes.add(event.step_name)
            elif event.type == EventType.LOOP_ITERATED:
                payload = payload_of(event)
                assert isinstance(payload, LoopIterated)
                if not payload.undoable:
                    self.iterations[event.step_name] = payload.iteration

    def advance(self, event: Event) -> None:
        """`event` is being taken in: one less to come."""
        self.remaining -= 1

    def ends_what_is_skipped(self, event: Event) -> bool:
        """Whether `event` is the result of a scope, or of iterations, whose code is not run again."""
        if event.type in _CLOSED:
            return event.step_name in self.closed_scopes
        return event.type == EventType.LOOP_ITERATED and event.step_name in self.iterations

    def skips(self, event: Event) -> bool:
        """Whether `event` is inside something that is finished and not run again."""
        if not self.closed_scopes and not self.iterations:
            return False
        if event.type == EventType.LOOP_ITERATED and event.step_name in self.iterations:
            payload = payload_of(event)
            assert isinstance(payload, LoopIterated)
            if payload.iteration < self.iterations[event.step_name]:
                return True
        inside, _, _ = event.step_name.rpartition("/")
        while inside:
            if inside in self.closed_scopes or self._is_past_iteration(inside):
                return True
            inside, _, _ = inside.rpartition("/")
        return False

    def _is_past_iteration(self, path: str) -> bool:
        loop, _, iteration = path.rpartition("/")
        done = self.iterations.get(loop)
        return done is not None and iteration.isdigit() and int(iteration) < done
