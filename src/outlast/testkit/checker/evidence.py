"""Evidence: what the clients saw, what was done in the world, and what the store holds at the end.

A call that was answered is `ok` or, if the store said no, `failed`. One whose answer was lost is
`unknown`: it may have happened or not, and the checker accepts both, but never half of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from outlast.errors import Undecodable
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed, Creation
from outlast.model.event import Event, payload_of
from outlast.model.ids import SEPARATOR
from outlast.model.payloads import Payload
from outlast.model.run import Status
from outlast.model.run_contents import Receipt, Send
from outlast.testkit.dump import Dump, RunDump


class Fate(StrEnum):
    """What a client knows of its call."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Op(Struct, frozen=True, kw_only=True):
    """One thing that a client tried. A call with several commits or sends is one of these for each.

    `begun` and `ended` are ticks of a clock that all clients share: if one ended before another
    began, it came first. `value` is what was asked for: a `Commit`, a `Send`, or the id of a run
    to delete (None: any that had expired); a claim has none. `result` is the answer.
    """

    name: str
    fate: Fate
    begun: int
    ended: int
    client: str = ""
    value: Commit | Send | str | None = None
    result: object = None
    atomic: bool = False


class Effect(Struct, frozen=True, kw_only=True):
    """A line of the ledger outside the store: a step's body ran. `ended` is None if it never did.
    `attempt` and `uid` are 0 and empty if they are unknown. A `stale` one ran in a process that had
    lost the run and could not know it yet."""

    run_id: str
    step: str
    begun: int
    ended: int | None = None
    attempt: int = 0
    uid: str = ""
    stale: bool = False


class Evidence(Struct, frozen=True, kw_only=True):
    """All that a checker looks at. `dumps` are in the order of time; the last is the final one.
    `complete` says that only the clients of this log wrote to the store, `settled` that when
    the final dump was made nothing was under way and nothing more would happen by itself."""

    dumps: Sequence[Dump]
    ops: Sequence[Op] = ()
    effects: Sequence[Effect] = ()
    complete: bool = True
    settled: bool = False


class Violation(Struct, frozen=True):
    """A promise that was not kept: which one, to whom, and how it shows."""

    invariant: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.invariant} {self.subject}: {self.message}"


class Attempt(Struct, frozen=True, kw_only=True):
    """A commit with all the calls that tried to make it."""

    commit: Commit
    ops: list[Op]

    @property
    def fate(self) -> Fate:
        fates = {op.fate for op in self.ops}
        if Fate.OK in fates:
            return Fate.OK
        return Fate.UNKNOWN if Fate.UNKNOWN in fates else Fate.FAILED

    @property
    def committed(self) -> Committed | None:
        """The answer, the first one if there were several."""
        answers = (op.result for op in self.ops if op.fate is Fate.OK)
        return next((answer for answer in answers if isinstance(answer, Committed)), None)

    @property
    def fresh(self) -> bool:
        """Whether an answer says that it was this call that made it durable."""
        return self.committed is not None and not self.committed.again

    @property
    def uid(self) -> str | None:
        """The life it belongs to, as far as known."""
        if self.committed is not None:
            return self.committed.uid
        return self.commit.create.uid if self.commit.create is not None else self.commit.uid

    @property
    def begun(self) -> int:
        return min(op.begun for op in self.ops)

    @property
    def acked(self) -> int:
        """The first tick at which a client knew that it had happened."""
        return min(op.ended for op in self.ops if op.fate is Fate.OK)


class Sent(Struct, frozen=True, kw_only=True):
    """An item on its way to an inbox, by a send or as part of a commit."""

    send: Send
    fate: Fate
    begun: int
    ended: int
    client: str = ""
    receipt: Receipt | None = None


class Case:
    """Evidence, sorted so that invariants can be read off."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.final: Dump = evidence.dumps[-1]
        self._told: dict[str, list[tuple[Event, Payload]]] = {}

    @cached_property
    def attempts(self) -> list[Attempt]:
        """All commits, by id."""
        found: dict[str, Attempt] = {}
        for op in self.evidence.ops:
            if isinstance(op.value, Commit):
                known = found.setdefault(op.value.id, Attempt(commit=op.value, ops=[]))
                known.ops.append(op)
        return list(found.values())

    @cached_property
    def claims(self) -> list[tuple[Op, Claim]]:
        """All claims on runs and tasks that were handed out."""
        return [(op, op.result) for op in self.evidence.ops if isinstance(op.result, Claim)]

    @cached_property
    def sent(self) -> list[Sent]:
        """All items that were sent on their own."""
        return [
            Sent(
                send=op.value,
                fate=op.fate,
                begun=op.begun,
                ended=op.ended,
                client=op.client,
                receipt=op.result if isinstance(op.result, Receipt) else None,
            )
            for op in self.evidence.ops
            if isinstance(op.value, Send)
        ]

    def attempts_at(self, run_id: str) -> list[Attempt]:
        """The commits of one run."""
        return self._attempts_by_run.get(run_id, [])

    def sent_to(self, run_id: str) -> list[Sent]:
        """The items that were sent to one run on their own."""
        return self._sent_by_run.get(run_id, [])

    @cached_property
    def forced(self) -> frozenset[str]:
        """The ids of events of commits that revoked the owner's claim: a terminate."""
        forced = (attempt.commit for attempt in self.attempts if attempt.commit.force)
        return frozenset(event.id for commit in forced for event in commit.events)

    @cached_property
    def _attempts_by_run(self) -> dict[str, list[Attempt]]:
        found: dict[str, list[Attempt]] = {}
        for attempt in self.attempts:
            found.setdefault(attempt.commit.run_id, []).append(attempt)
        return found

    @cached_property
    def _sent_by_run(self) -> dict[str, list[Sent]]:
        found: dict[str, list[Sent]] = {}
        for sent in self.sent:
            found.setdefault(sent.send.run_id, []).append(sent)
        return found

    def lives(self) -> Iterator[tuple[RunDump, RunDump]]:
        """Each life in two dumps that follow each other."""
        for earlier, later in zip(self.evidence.dumps, self.evidence.dumps[1:], strict=False):
            for id, before in earlier.runs.items():
                after = later.runs.get(id)
                if after is not None and after.run.uid == before.run.uid:
                    yield before, after

    def life(self, run_id: str, uid: str | None) -> RunDump | None:
        """What the final dump has of that life of a run."""
        found = self.final.runs.get(run_id)
        return found if found is not None and uid in (None, found.run.uid) else None

    def may_be_gone(self, run_id: str) -> bool:
        """Whether a client has deleted or replaced that run or an ancestor, or may have."""
        return any(
            op.fate is not Fate.FAILED
            and (target is None or run_id == target or run_id.startswith(target + SEPARATOR))
            for op, target in self._removals
        )

    def holds(self, attempt: Attempt) -> RunDump | None:
        """The life that has the events of a commit, or None; None also for a commit without events."""
        dumped = self.life(attempt.commit.run_id, attempt.uid)
        if dumped is None or not attempt.commit.events:
            return None
        ids = {event.id for event in dumped.events}
        return dumped if any(event.id in ids for event in attempt.commit.events) else None

    def typed_events(self, run_id: str) -> list[tuple[Event, Payload]]:
        """The final history of a run with what its events say, as far as anybody can read it."""
        if run_id not in self._told:
            dumped = self.final.runs.get(run_id)
            events = dumped.events if dumped is not None else []
            self._told[run_id] = list(readable(events))
        return self._told[run_id]

    @cached_property
    def durable(self) -> list[tuple[int, Event]]:
        """Every event that was written, with the tick from which on a process may have known. If
        no answer came, another client may have read it as soon as the call was made."""
        written = {event.id for dumped in self.final.runs.values() for event in dumped.events}
        return [
            (op.ended if isinstance(op.result, Committed) else op.begun, event)
            for op in self.evidence.ops
            if isinstance(op.value, Commit)
            for event in op.value.events
            if isinstance(op.result, Committed) or event.id in written
        ]

    @cached_property
    def _removals(self) -> list[tuple[Op, str | None]]:
        found: list[tuple[Op, str | None]] = []
        for op in self.evidence.ops:
            if op.name in {"delete", "expire"} and not isinstance(op.value, (Commit, Send)):
                found.append((op, op.value))
            elif isinstance(op.value, Commit) and op.value.creation is Creation.REPLACE:
                found.append((op, op.value.run_id))
        return found


def ends(commit: Commit) -> bool:
    """Whether a commit ends its run."""
    status = commit.change.status if commit.change is not None else None
    return isinstance(status, Status) and status.terminal


def readable(events: Sequence[Event]) -> Iterator[tuple[Event, Payload]]:
    """Events with their payloads; events that cannot be decoded are skipped."""
    for event in events:
        with suppress(Undecodable):
            yield event, payload_of(event)


def position(event: Event) -> str:
    """An event, for messages."""
    return f"event {event.id!r} at {event.sequence}"
