"""ReplayLog: the events that a replay still needs, and their snapshot. HistoryIndex: what a replay looks up ahead.
PendingCommit: what is not written yet.

The events inside a finished scope or an earlier iteration of a loop are never replayed, and a step's input is only
needed when it starts; so a replay needs less than the whole history. The replay log is kept while the run is in
memory. It is written as a snapshot when it has outgrown the last one, or when a scope has ended that was most of it: a
long run writes its log a few times, not once per event. A snapshot is a cache. If it is missing, cannot be decoded or
is too large to store, the whole history is read.

Most events are applied one by one. But a branch needs its recorded choice at once, and the code inside a finished
scope or iteration is not run again; the index finds these by key. If something inside may have to be undone, the
code runs again, because only the code knows how: the whole scope, or the loop from the iteration before. What was
skipped once is always skipped, because the snapshot no longer has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from outlast.errors import InvalidValue, Undecodable
from outlast.model.commit import Start
from outlast.model.event import Event, EventType, payload_of
from outlast.model.json import to_json
from outlast.model.payloads import (
    BranchEvaluated,
    LoopIterated,
    Payload,
    ScopeCompleted,
    ScopeFailedEvent,
)
from outlast.model.run import Attribute, Run
from outlast.model.run_contents import Fact, Send, Snapshot, Task
from outlast.model.times import from_micros, to_micros
from outlast.model.validation import MAX_PAYLOAD_BYTES

SNAPSHOT_AFTER = 256


class ResidencyPolicy(Struct, frozen=True, kw_only=True):
    """How long a run stays in memory, and when its history is written as a snapshot. The defaults are for speed; tests
    choose others, so that snapshots and replays happen at every commit.

    `snapshot_after`: a history with fewer events is read faster than a snapshot. `growth`: the next snapshot is due
    when the replay log has grown by this share of the last one. `evicts`: a run leaves memory after every commit that
    advances it, as soon as none of its steps runs, and is resumed from the store.
    """

    snapshot_after: int = SNAPSHOT_AFTER
    growth: float = 1.0
    evicts: bool = False

    def __post_init__(self) -> None:
        if self.snapshot_after < 1 or self.growth < 0:
            raise InvalidValue(
                f"snapshot_after={self.snapshot_after}, growth={self.growth}: a snapshot needs at "
                "least one event, and a replay log only grows; use snapshot_after ≥ 1 and growth ≥ 0"
            )

    def due_after(self, snapshotted: int) -> int:
        """How many events a replay log has when its next snapshot is due, after one of `snapshotted` events."""
        return snapshotted + max(self.snapshot_after, int(snapshotted * self.growth))


DEFAULT_RESIDENCY = ResidencyPolicy()


SCOPED = {EventType.SCOPE_STARTED, EventType.SCOPE_COMPLETED, EventType.SCOPE_FAILED}

CODEC = "replay-log-2"
"""Snapshots with another codec are ignored."""


class ReplayLog:
    """The events that a replay of one run needs, in order."""

    def __init__(
        self,
        events: Sequence[Event] = (),
        *,
        snapshotted: int = 0,
        writes: bool = False,
        residency: ResidencyPolicy = DEFAULT_RESIDENCY,
    ) -> None:
        self.events: list[Event] = []
        self._writes = writes
        self._residency = residency
        self._scopes: dict[str, int] = {}  # the positions at which they start
        self._over = 0  # events inside scopes that have ended
        self._wait_after(snapshotted)
        self.add(events)

    def add(self, events: Sequence[Event]) -> None:
        """Append events of the history, numbered or not."""
        for event in events:
            if event.type in SCOPED:
                self._note_scope(event)
            self.events.append(event)

    def _note_scope(self, event: Event) -> None:
        if event.type == EventType.SCOPE_STARTED:
            self._scopes[event.step_name] = len(self.events)
        else:
            start = self._scopes.pop(event.step_name, len(self.events))
            self._over += len(self.events) - start

    @property
    def is_due(self) -> bool:
        """Whether a snapshot is due: the store keeps snapshots, and the log has outgrown the last one or most of it is
        inside finished scopes."""
        return self._writes and (
            len(self.events) >= self._due_at
            or (self._over >= self._residency.snapshot_after and 2 * self._over >= len(self.events))
        )

    def snapshot(self, run: Run, sequence: int, now: datetime) -> Snapshot | None:
        """Compact the log and return it as the snapshot up to `sequence`. None if it is too large for a store: then
        the next one is due when the log has grown as much again."""
        self._number(sequence)
        self.compact()
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

    def compact(self) -> None:
        """Remove the events that a replay skips."""
        index = HistoryIndex(self.events)
        needed = [event for event in self.events if not index.skips(event)]
        self.events, self._over = [], 0
        self._scopes.clear()
        self.add(needed)

    def _number(self, last: int) -> None:
        """Number the events that the store had not numbered yet: they follow each other, up to `last`."""
        first = last - len(self.events) + 1
        self.events = [
            event if event.sequence else msgspec.structs.replace(event, sequence=first + position)
            for position, event in enumerate(self.events)
        ]


class _Line(Struct, omit_defaults=True):
    """An event in a snapshot: t type, k key, a at, n number, d data, o output."""

    t: str
    a: int
    n: int = 0
    k: str = ""
    d: Raw = Raw(b"{}")
    o: list[Raw] = []


class _Attempt(Struct, omit_defaults=True):
    """What a replay needs of ``step.started``: not the input, which may be large."""

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
    """What a replay looks up in a history ahead of the events themselves."""

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
        """Count `event` as applied."""
        self.remaining -= 1

    def ends_what_is_skipped(self, event: Event) -> bool:
        """Whether `event` is the result of a scope, or of iterations, whose code is skipped."""
        if event.type in _CLOSED:
            return event.step_name in self.closed_scopes
        return event.type == EventType.LOOP_ITERATED and event.step_name in self.iterations

    def skips(self, event: Event) -> bool:
        """Whether `event` is inside a finished scope or iteration, whose code is not run again."""
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


class Undelivered(NamedTuple):
    """A delivery to code that has ended in a programming error: it is sent to the run's own inbox."""

    key: str
    payload: Payload
    output: Raw | None


class PendingCommit(Struct):
    """The changes that the next commit will contain."""

    events: list[Event] = []
    consumes: list[int] = []
    starts: list[Start] = []
    sends: list[Send] = []
    tasks: list[Task] = []
    drops: list[str] = []
    facts: list[Fact] = []
    published: dict[str, Raw] = {}
    attributes: dict[str, Attribute] = {}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.events or self.consumes or self.sends or self.published or self.attributes)
