"""The optional part of the memory store: inbox, tasks, what a run owns, keys, delete, retention."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec

from outlast.errors import Fenced, RunsOpen, StoreClosed
from outlast.model.claim import LISTED_FOR, Claim, Worker
from outlast.model.commit import Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.ids import SEPARATOR
from outlast.model.run import Run, Status
from outlast.model.run_contents import (
    Activity,
    BoundKey,
    Entry,
    Fact,
    HeldTask,
    Item,
    Receipt,
    RunContents,
    Send,
    Task,
    Timer,
    refusing,
)
from outlast.model.snapshot import Snapshot
from outlast.ports.clock import Clock, steady
from outlast.ports.store import Store
from outlast.stores.memory.commit import deliver
from outlast.stores.memory.tables import Life, Tables, private


class MemoryOptional(Store):
    """All that a minimal store may leave out."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=steady(clock))
        self._tables = Tables()
        self._closed = False

    @contextmanager
    def _locked(self) -> Iterator[Tables]:
        with self._tables.lock:
            if self._closed:
                raise StoreClosed("this store is closed: open it again, or close it later")
            yield self._tables

    @contextmanager
    def _life(self, run_id: str) -> Iterator[Life | None]:
        with self._locked() as tables:
            yield tables.lives.get(run_id)

    # -- workers ------------------------------------------------------------------------------

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        now = self.clock.now()
        with self._locked() as tables:
            known = tables.workers.get(worker.owner)
            tables.workers[worker.owner] = msgspec.structs.replace(
                worker,
                started_at=now if known is None else known.started_at,
                seen_at=now,
                until=now + timedelta(seconds=ttl),
            )
            for one in list(tables.workers.values()):
                if one.until < now - LISTED_FOR:
                    del tables.workers[one.owner]

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        with self._locked() as tables:
            return tables.workers.pop(owner, None) is not None

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        with self._locked() as tables:
            known = list(tables.workers.values())
        return sorted(known, key=lambda one: (one.started_at, one.owner))

    # -- inbox --------------------------------------------------------------------------------

    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        with self._locked() as tables:
            now = self.clock.now()
            for claim in (*finishes, *keeps):
                held = tables.alive(claim, now) if claim in keeps else tables.claimed(claim)
                if held is None:
                    raise Fenced(claim.subject, token=claim.token)
            receipts = [deliver(tables, send, self.clock.now()) for send in sends]
            for claim in finishes:
                tables.finish(claim)
            refused = refusing(sends, receipts)
            for claim in keeps:
                if claim.run_id not in refused:
                    tables.keep(claim)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return receipts

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        with self._life(run_id) as life:
            inbox = {} if life is None else life.inbox
            return [inbox[number] for number in sorted(inbox) if number > after][:limit]

    # -- tasks --------------------------------------------------------------------------------

    async def claim_task(
        self,
        run_id: str,
        task_id: str,
        owner: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Claim | None:
        now = self.clock.now()
        with self._locked() as tables:
            for (_, of_run, id), queued in tables.tasks.items():
                if (of_run, id) == (run_id, task_id) and queued.available(now):
                    return tables.lease(queued, owner, ttl, now)
        return None

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        now = self.clock.now()
        with self._locked() as tables:
            ready = [
                queued
                for queued in tables.tasks.values()
                if queued.available(now) and queue in (None, queued.task.queue)
            ]
        ready.sort(key=lambda queued: (queued.task.priority, queued.ready_at, queued.order))
        return [private(queued.task) for queued in ready[:limit]]

    # -- what a run owns ----------------------------------------------------------------------

    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        with self._life(run_id) as life:
            timers = [] if life is None else list(life.timers.values())
        return sorted(timers, key=lambda timer: (timer.fire_at, timer.id))

    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        moment = now or self.clock.now()
        with self._locked() as tables:
            due = [
                timer
                for life in tables.lives.values()
                for timer in life.timers.values()
                if not timer.fired and timer.fire_at <= moment
            ]
        return sorted(due, key=lambda timer: (timer.fire_at, timer.run_id, timer.id))[:limit]

    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        with self._life(run_id) as life:
            return [] if life is None else sorted(life.entries, key=lambda entry: entry.timestamp)

    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        with self._life(run_id) as life:
            return [] if life is None else [life.activities[id] for id in sorted(life.activities)]

    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        with self._locked() as tables:
            for life in tables.lives.values():
                if activity_id in life.activities:
                    return life.activities[activity_id]
        return None

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        with self._life(run_id) as life:
            return None if life is None else life.snapshot

    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        with self._life(run_id) as life:
            if life is None or life.snapshot is None:
                return False
            life.snapshot = None
            return True

    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        with self._locked() as tables:
            ids = [id for id, life in tables.lives.items() if life.snapshot and id > after]
        return sorted(ids)[:limit]

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        with self._locked() as tables:
            return tables.facts.get((root, hash))

    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        with self._locked() as tables:
            tables.facts["", fact.hash] = Fact(fact.hash, fact.data)

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        with self._locked() as tables:
            return tables.facts.pop(("", hash), None) is not None

    # -- idempotency keys ---------------------------------------------------------------------

    async def remember(
        self,
        scope: str,
        key: str,
        value: str,
        *,
        run_id: str | None = None,
        timeout: float | None = None,
    ) -> str | None:
        with self._locked() as tables:
            bound = tables.keys.get((scope, key))
            if bound is None:
                tables.keys[scope, key] = (value, run_id)
            return None if bound is None else bound[0]

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        with self._locked() as tables:
            bound = tables.keys.get((scope, key))
            return None if bound is None else bound[0]

    # -- transfer to another store --------------------------------------------------------------

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        with self._life(run_id) as life:
            tables = self._tables
            if life is None:
                return RunContents()
            own = [one for one in tables.tasks.values() if one.task.run_id == run_id]
            own.sort(key=lambda one: one.order)
            return RunContents(
                receipts=tuple(sorted(life.item_ids, key=life.item_ids.__getitem__)),
                tasks=tuple(private(one.task) for one in own),
                holdings=tuple(
                    HeldTask(one.task.id, one.task.queue, one.owner, one.claimed_until)
                    for one in own
                    if one.owner is not None
                ),
                dead=tuple(one for one in tables.dead.values() if one.task.run_id == run_id),
                keys=tuple(
                    BoundKey(scope, key, value)
                    for (scope, key), (value, owner) in sorted(tables.keys.items())
                    if owner == run_id
                ),
                facts=tuple(sorted(hash for root, hash in tables.facts if root == run_id)),
            )

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        with self._locked() as tables:
            tables.token = max(tables.token, above)

    # -- the end ------------------------------------------------------------------------------

    async def delete(
        self,
        run_id: str,
        *,
        uid: str | None = None,
        only_ended: bool = False,
        open_at: Mapping[str, str | None] | None = None,
        sends: Sequence[Send] = (),
        timeout: float | None = None,
    ) -> bool:
        with self._locked() as tables:
            life = tables.lives.get(run_id)
            if uid is not None and (life is None or life.run.uid != uid):
                return False
            if only_ended:
                root = [] if life is None or life.run.is_over else [run_id]
                seen = open_at or {}
                others = [
                    id
                    for id in root + tables.open_below(run_id)
                    if seen.get(id, "unseen") not in (tables.lives[id].run.commit_id, None)
                ]
                if others:
                    raise RunsOpen(run_id, sorted(others))
            was_there = tables.forget(run_id)
            now = self.clock.now()
            for send in sends:
                deliver(tables, send, now)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return was_there

    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        with self._locked() as tables:
            ended = [
                (life.run.ended_at, id)
                for id, life in tables.lives.items()
                if _expired(tables, life.run, before) and (not status or life.run.status in status)
            ]
            gone = sorted(id for _, id in sorted(ended)[:limit])
            for id in gone:
                tables.forget(id)
        return gone


def _expired(tables: Tables, run: Run, before: datetime) -> bool:
    if run.ended_at is None or run.ended_at >= before or SEPARATOR in run.id:
        return False
    parent = None if run.parent is None else tables.lives.get(run.parent)
    if not run.is_over or (parent is not None and not parent.run.is_over):
        return False
    below = run.id + SEPARATOR
    return all(life.run.is_over for id, life in tables.lives.items() if id.startswith(below))
