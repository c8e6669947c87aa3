"""Bundle: one run with all its contents, on its way to another store or to a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from outlast.engine.operations.step import StepReport
from outlast.engine.replay.completion import child_outcome, parent_uid_in
from outlast.errors import Busy, Moved, Undecodable
from outlast.model.claim import ClaimOnCreate
from outlast.model.commit import Commit, Creation
from outlast.model.event import Event, EventType, payload_of
from outlast.model.ids import root_of
from outlast.model.json import from_json
from outlast.model.payloads import ChildSpawned, Payload
from outlast.model.query import RunQuery
from outlast.model.run import Change, Run
from outlast.model.run_contents import (
    Activity,
    BoundKey,
    DeadTask,
    Entry,
    Fact,
    Item,
    ItemKind,
    Send,
    Snapshot,
    Task,
    Timer,
)
from outlast.model.times import NOW
from outlast.ports.store import Store
from outlast.transfer.tombstone import StateBeforeMove, is_moving, moved_event

PAGE = 1000
TRIES = 20
PAUSE_S = 0.1
TOMBSTONES_BEFORE, ARRIVED = PROGRESS_SCOPES = ("move:noted", "move:arrived")
"""Scopes of keys at the source that record how far a move has come. They are not moved."""
ARRIVED_LIFE = "move:landed"
"""Scope of permanent keys in the target: the open lives that have arrived. The token is part of the key,
since a life that is moved away and back has a greater one."""
RECEIPT = ItemKind.RECEIPT
"""The kind of an item that replaces one that is already consumed, so that its id stays taken."""
_ENDS = (EventType.WORKFLOW_COMPLETED, EventType.WORKFLOW_FAILED, EventType.WORKFLOW_CANCELLED)


@dataclass
class Bundle:
    """One run, as it was before it was marked as moving. `state_hash` names the fact that says so."""

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
    state_hash: str = ""

    @property
    def token(self) -> int:
        """The greatest token of its events and its last claim."""
        return max([self.run.token, *(event.token for event in self.events)])

    def import_commit(self, owner: str, ttl: float, *, tombstone: Run | None) -> Commit:
        """The commit that writes the whole run, claimed by the mover unless the run has ended. It replaces
        the `tombstone` that an earlier move out of the target has left."""
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
            uid=None if tombstone is None else tombstone.uid,
            create=run,
            creation=Creation.NEW if tombstone is None else Creation.REPLACE,
            force=tombstone is not None,
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
    def arrival_key(self) -> str:
        """Names this life as it was when it was moved; the same when the move is repeated."""
        return f"{self.run.uid} {self.token}"

    def release_commit(self, token: int) -> Commit:
        """The commit that gives up the mover's claim. It consumes the items that were consumed before,
        and restores `runnable_at`."""
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


async def export_runs(
    store: Store, run_id: str, progress: Callable[[int], None] | None = None
) -> list[Bundle]:
    """A run and its descendants, parents first, all as of one moment; read only. Raises `Busy` if they
    keep changing."""
    changed = run_id
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        family: list[Bundle] = []
        before: list[Run] = []
        async for run in _family(store, run_id):
            before.append(run)
            family.append(await load(store, run))
            if progress is not None:
                progress(len(family))
        trees: dict[str, list[Bundle]] = {}
        for bundle in family:
            trees.setdefault(root_of(bundle.run.id), []).append(bundle)
        for root, tree in trees.items():
            await load_facts(store, root, tree)
        after = [run async for run in _family(store, run_id)]
        if list(map(_state, before)) == list(map(_state, after)):
            return family
        changed = next(
            (a.id for a, b in zip(before, after, strict=False) if _state(a) != _state(b)), run_id
        )
    raise Busy(f"run {changed!r} kept changing during {TRIES} attempts: pause it, or try again")


async def _family(store: Store, run_id: str) -> AsyncIterator[Run]:
    run = await store.get(run_id)
    if run.moved_to is not None and not is_moving(run):
        raise Moved(run.id, run.moved_to)
    yield run
    children = [child.id async for child in store.find_all(RunQuery(parent=run.id))]
    for child in sorted(children):
        async for one in _family(store, child):
            yield one


def _state(run: Run) -> tuple[str, str, int, int]:
    return run.id, run.uid, run.revision, run.inbox


async def load(store: Store, run: Run) -> Bundle:
    """A run with all its contents, as it was before it was marked as moving."""
    history = await store.history(run.id)
    contents = await store.contents(run.id)
    bundle = Bundle(
        run,
        history,
        items=await _items(store, run.id),
        receipts=contents.receipts,
        timers=await store.timers(run.id),
        tasks=list(contents.tasks),
        dead=list(contents.dead),
        keys=tuple(key for key in contents.keys if key.scope not in PROGRESS_SCOPES),
        entries=await store.entries(run.id),
        activities=await store.activities(run.id),
        snapshot=await store.find_snapshot(run.id),
    )
    if is_moving(run):
        bundle.state_hash = moved_event(run, history).state
        fact = await store.find_fact(bundle.state_hash, root=root_of(run.id))
        if fact is None:
            raise Undecodable(
                f"the fact with the state of run {run.id!r} before its move is missing"
            )
        where = f"the state of run {run.id!r} before its move"
        _undo_mark(bundle, from_json(fact.data, StateBeforeMove, where=where))
    elif run.status.terminal:
        bundle.timers = [timer for timer in bundle.timers if timer.fired]
    return bundle


async def load_facts(store: Store, root: str, tree: Sequence[Bundle]) -> None:
    """Add the facts of a tree to its first bundle, without those that the move itself has written."""
    state_hashes = {bundle.state_hash for bundle in tree}
    for hash in (await store.contents(root)).facts:
        fact = None if hash in state_hashes else await store.find_fact(hash, root=root)
        if fact is not None:
            tree[0].facts.append(fact)


def deliver_child_outcomes(family: Iterable[Bundle]) -> None:
    """Add the outcome of each ended child to its parent's inbox, under the id that it would have had. A
    child that ended after its parent was marked as moving could not send it."""
    runs = {bundle.run.id: bundle for bundle in family}
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


def _undo_mark(bundle: Bundle, state: StateBeforeMove) -> None:
    bundle.events = bundle.events[:-1]
    # A message may have arrived between the read of the record and the mark.
    is_woken = bundle.run.inbox > state.inbox
    bundle.run = msgspec.structs.replace(
        bundle.run,
        status=state.status,
        wait_kind=state.wait_kind,
        error=state.error,
        runnable_at=NOW if is_woken else state.runnable_at,
        ended_at=None,
    )
    bundle.timers = [*bundle.timers, *state.timers]
    bundle.tasks = [task for task in state.open_tasks if not _is_reported(bundle, task)]
    bundle.dead = state.dead_tasks


def _is_reported(bundle: Bundle, task: Task) -> bool:
    """Whether a worker reported the end of a task between the read of the contents and the mark."""
    for item in bundle.items:
        if item.kind == ItemKind.STEP and item.name == task.step and item.data is not None:
            report = from_json(item.data, StepReport, where=f"report of {task.step!r}")
            over = report.output is not None or report.failed is not None
            if over and str(report.attempt) == task.metadata.get("attempt"):
                return True
    return False


def _end_of(bundle: Bundle) -> Payload | None:
    ends = [event for event in bundle.events if event.type in _ENDS]
    return payload_of(ends[-1]) if ends else None


def _spawned(parent: Bundle, child_id: str) -> bool:
    for event in parent.events:
        if event.type == EventType.CHILD_SPAWNED:
            payload = payload_of(event)
            if isinstance(payload, ChildSpawned) and payload.child_run_id == child_id:
                return True
    return False


async def _items(store: Store, run_id: str) -> list[Item]:
    found: list[Item] = []
    while True:
        page = await store.inbox(run_id, after=found[-1].number if found else 0, limit=PAGE)
        found += page
        if len(page) < PAGE:
            return found
