"""Bundle: a run with all it owns, read where it is closed, written where it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from outlast.engine.operations.step import StepReport
from outlast.engine.replay.completion import child_outcome, parent_uid_in
from outlast.errors import Undecodable
from outlast.model.claim import ClaimOnCreate
from outlast.model.commit import Commit, Creation
from outlast.model.event import Event, EventType
from outlast.model.event_data import payload_of
from outlast.model.ids import root_of
from outlast.model.inbox import Item, Send
from outlast.model.json import from_json
from outlast.model.payloads import ChildSpawned, Payload
from outlast.model.run import Change, Run
from outlast.model.run_contents import Activity, BoundKey, Entry, Fact, Timer
from outlast.model.snapshot import Snapshot
from outlast.model.task import DeadTask, Task
from outlast.model.times import NOW
from outlast.ports.store import Store
from outlast.transfer.tombstone import Sealed, is_sealed, seal_in

PAGE = 1000
NOTED, ARRIVED = MARKS = ("move:noted", "move:arrived")
LANDED = "move:landed"
"""In the target, for good: open lives that have come. Each by its token too, since a life that is
moved away and comes back has a greater one."""
"""Keys with which a mover marks, at the source, how far it has come. They stay behind."""
RECEIPT = "receipt"
"""The kind of an item that stands for one that was consumed before: its id must stay taken."""
_ENDS = (EventType.WORKFLOW_COMPLETED, EventType.WORKFLOW_FAILED, EventType.WORKFLOW_CANCELLED)


@dataclass
class Bundle:
    """One run, as it was before it was sealed."""

    run: Run
    events: list[Event]
    items: list[Item] = field(default_factory=list)
    receipts: tuple[str, ...] = ()
    facts: list[Fact] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    dead: list[DeadTask] = field(default_factory=list)
    keys: tuple[BoundKey, ...] = ()
    entries: list[Entry] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    snapshot: Snapshot | None = None
    seal: str = ""

    @property
    def token(self) -> int:
        """The greatest token that any of its events, or its last claim, has had."""
        return max([self.run.token, *(event.token for event in self.events)])

    def arrival(self, owner: str, ttl: float, *, grave: Run | None) -> Commit:
        """The commit with which it is there, all of it, held by the mover unless it has ended.
        Where it has been before, one record is left that says where it went: that grave goes."""
        run = self.run
        ended = run.status.terminal
        numbered = {} if ended else {item.id: item for item in self.items}
        sends = [
            Send(run_id=run.id, item=numbered.get(id) or Item(kind=RECEIPT, id=id))
            for id in (() if ended else self.receipts)
        ]
        known = set(self.receipts)
        sends += [
            Send(run_id=run.id, item=item) for id, item in numbered.items() if id not in known
        ]
        return Commit(
            run_id=run.id,
            uid=None if grave is None else grave.uid,
            create=run,
            creation=Creation.NEW if grave is None else Creation.REPLACE,
            force=grave is not None,
            hold=None if ended else ClaimOnCreate(owner, ttl),
            events=tuple(msgspec.structs.replace(one, sequence=0, token=0) for one in self.events),
            sends=tuple(sends),
            timers=tuple(self.timers),
            fired=tuple(timer.id for timer in self.timers if timer.fired),
            tasks=() if ended else tuple(self.tasks),
            dead=() if ended else tuple(self.dead),
            facts=tuple(self.facts),
            entries=tuple(self.entries),
            activities=tuple(self.activities),
            snapshot=self.snapshot,
        )

    @property
    def landing_key(self) -> str:
        """Names this life as it was when it was moved; the same for whoever repeats the move."""
        return f"{self.run.uid} {self.token}"

    def settling(self, token: int) -> Commit:
        """The commit with which the mover lets go of it: what was consumed before is consumed again,
        and it is due when it was."""
        waiting = {item.id for item in self.items}
        consumed = [number for number, id in enumerate(self.receipts, 1) if id not in waiting]
        return Commit(
            run_id=self.run.id,
            uid=self.run.uid,
            token=token,
            consumes=tuple(consumed),
            seen=len(waiting | set(self.receipts)),
            change=Change(runnable_at=self.run.runnable_at),
            release=True,
        )


async def load(store: Store, run: Run) -> Bundle:
    """A run with all it owns, as it was before it was sealed."""
    history = await store.history(run.id)
    owned = await store.contents(run.id)
    cargo = Bundle(
        run,
        history,
        items=await _items(store, run.id),
        receipts=owned.receipts,
        timers=await store.timers(run.id),
        tasks=list(owned.tasks),
        dead=list(owned.dead),
        keys=tuple(key for key in owned.keys if key.scope not in MARKS),
        entries=await store.entries(run.id),
        activities=await store.activities(run.id),
        snapshot=await store.find_snapshot(run.id),
    )
    if is_sealed(run):
        seal = seal_in(run, history)
        fact = await store.find_fact(seal.state, root=root_of(run.id))
        if fact is None:
            raise Undecodable(f"the fact that says what run {run.id!r} was before is missing")
        cargo.seal = seal.state
        _unseal(cargo, from_json(fact.data, Sealed, where=f"the seal of run {run.id!r}"))
    elif run.status.terminal:
        cargo.timers = [timer for timer in cargo.timers if timer.fired]
    return cargo


async def load_facts(store: Store, root: str, tree: Sequence[Bundle]) -> None:
    """The facts of a tree, which arrive with the first of its runs. Those of seals stay behind."""
    seals = {cargo.seal for cargo in tree}
    for hash in (await store.contents(root)).facts:
        fact = None if hash in seals else await store.find_fact(hash, root=root)
        if fact is not None:
            tree[0].facts.append(fact)


def tell_parents(family: Iterable[Bundle]) -> None:
    """A child that ended when its parent was sealed already could not tell it: its outcome is put
    into the parent's inbox now, under the id under which it would have come."""
    runs = {cargo.run.id: cargo for cargo in family}
    for child in list(runs.values()):
        parent = runs.get(child.run.parent or "")
        if parent is None or parent.run.status.terminal or not child.run.status.terminal:
            continue
        end = _end_of(child)
        if end is None or not _spawned(parent, child.run.id):
            continue
        item = child_outcome(child.run, end, parent_uid_in(child.events)).item
        if item.id not in parent.receipts:
            parent.items.append(item)
            parent.run = msgspec.structs.replace(parent.run, runnable_at=NOW)


def _unseal(cargo: Bundle, state: Sealed) -> None:
    cargo.events = cargo.events[:-1]
    # Something may have come after its record was read and before it was sealed.
    is_woken = cargo.run.inbox > state.inbox
    cargo.run = msgspec.structs.replace(
        cargo.run,
        status=state.status,
        wait_kind=state.wait_kind,
        error=state.error,
        runnable_at=NOW if is_woken else state.runnable_at,
        ended_at=None,
    )
    cargo.timers = [*cargo.timers, *state.timers]
    cargo.tasks = [task for task in state.living if not _is_reported(cargo, task)]
    cargo.dead = state.buried


def _is_reported(cargo: Bundle, task: Task) -> bool:
    """Whether a worker has told how a task ended, after it was written down and before the seal."""
    for item in cargo.items:
        if item.kind == "step" and item.name == task.step and item.data is not None:
            report = from_json(item.data, StepReport, where=f"report of {task.step!r}")
            over = report.output is not None or report.failed is not None
            if over and str(report.attempt) == task.metadata.get("attempt"):
                return True
    return False


def _end_of(cargo: Bundle) -> Payload | None:
    ends = [event for event in cargo.events if event.type in _ENDS]
    return payload_of(ends[-1]) if ends else None


def _spawned(parent: Bundle, child_id: str) -> bool:
    for event in parent.events:
        if event.type == EventType.CHILD_SPAWNED:
            said = payload_of(event)
            if isinstance(said, ChildSpawned) and said.child_run_id == child_id:
                return True
    return False


async def _items(store: Store, run_id: str) -> list[Item]:
    found: list[Item] = []
    while True:
        page = await store.inbox(run_id, after=found[-1].number if found else 0, limit=PAGE)
        found += page
        if len(page) < PAGE:
            return found
