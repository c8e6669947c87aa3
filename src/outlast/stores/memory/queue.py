"""MemoryQueue: the queue port in plain dicts, on the same tables as the memory store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

import msgspec

from outlast.errors import Fenced, NotFound, QueueClosed
from outlast.model.claim import Claim
from outlast.model.commit_rules import WakeupKind
from outlast.model.queue_policy import (
    KEPT_CHANGES,
    ExpectedPolicy,
    PolicyChange,
    QueuePolicy,
)
from outlast.model.run_contents import DeadTask, Delivery, Task
from outlast.model.stats import COUNTED, QueueStats
from outlast.ports.clock import Clock, steady
from outlast.ports.notifier import Notifier
from outlast.ports.queue import DEFAULT_ATTEMPTS, POLL_SECONDS, Queue, addressed
from outlast.stores.memory.fair_queue import next_ready_at, next_tasks, stats_of
from outlast.stores.memory.tables import QueuedTask, Tables


class MemoryQueue(Queue):
    """Named queues in this process, gone with it. Thread-safe."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
        poll: float = POLL_SECONDS,
        tables: Tables | None = None,
    ) -> None:
        super().__init__(
            clock=steady(clock), notifier=notifier, max_attempts=max_attempts, poll=poll
        )
        self._tables = tables or Tables()
        self._closed = False

    async def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        self.notifier.wake()

    @contextmanager
    def _locked(self) -> Iterator[Tables]:
        with self._tables.lock:
            if self._closed:
                raise QueueClosed("this queue is closed: open it again, or close it later")
            yield self._tables

    async def enqueue(
        self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, timeout: float | None = None
    ) -> int:
        now = self.clock.now()
        stamped = addressed(queue, tasks, now)
        later = now + timedelta(seconds=delay)
        with self._locked() as tables:
            added = sum(tables.add_task(task, max(later, task.run_at or now)) for task in stamped)
        self.notifier.wake()
        return added

    async def take_many(
        self,
        queues: Collection[str],
        *,
        owner: str,
        visibility: float,
        limit: int,
        timeout: float | None = None,
    ) -> list[Delivery]:
        now = self.clock.now()
        taken: list[Delivery] = []
        with self._locked() as tables:
            while len(taken) < limit:
                chosen = next_tasks(tables, queues, limit - len(taken), now)
                for queued in chosen:
                    attempt = queued.task.attempt
                    if attempt >= self.max_attempts:
                        _bury(tables, queued, f"no success in {attempt} attempts", now)
                        continue
                    queued.task = msgspec.structs.replace(queued.task, attempt=attempt + 1)
                    taken.append(
                        Delivery(queued.task, tables.lease(queued, owner, visibility, now))
                    )
                if not chosen:
                    break
        return taken

    async def ack(self, claim: Claim, *, timeout: float | None = None) -> None:
        with self._held(claim) as (tables, queued):
            _remove(tables, queued)
        self.notifier.wake(WakeupKind.TASKS)  # there may be room for another one

    async def nack(
        self,
        claim: Claim,
        *,
        requeue: bool = True,
        delay: float = 0.0,
        drop: bool = False,
        reason: str = "rejected",
        timeout: float | None = None,
    ) -> None:
        now = self.clock.now()
        with self._held(claim) as (tables, queued):
            if requeue and queued.task.attempt < self.max_attempts:
                queued.owner = queued.claimed_until = None
                queued.ready_at = now + timedelta(seconds=delay)
            elif drop and not requeue:
                _remove(tables, queued)
            else:
                _bury(tables, queued, reason, now)
        self.notifier.wake()

    async def extend(self, claim: Claim, seconds: float, *, timeout: float | None = None) -> Claim:
        with self._held(claim) as (tables, queued):
            if tables.alive(claim, self.clock.now()) is None:
                raise Fenced(claim.subject, token=claim.token, current=queued.token)
            queued.claimed_until = self.clock.now() + timedelta(seconds=seconds)
            return msgspec.structs.replace(claim, expires_at=queued.claimed_until)

    async def len(self, queue: str, *, timeout: float | None = None) -> int:
        now = self.clock.now()
        with self._locked() as tables:
            return sum(
                queued.task.queue == queue and queued.available(now)
                for queued in tables.tasks.values()
            )

    async def names(self, *, timeout: float | None = None) -> list[str]:
        with self._locked() as tables:
            return sorted({queue for queue, _, _ in (*tables.tasks, *tables.dead)})

    async def dead(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[DeadTask]:
        with self._locked() as tables:
            dead = [dead for dead in tables.dead.values() if dead.task.queue == queue]
        return sorted(dead, key=lambda one: (one.died_at, one.task.id))[:limit]

    async def redrive(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        with self._locked() as tables:
            chosen = _chosen(tables, queue, task_ids)
            for dead in chosen:
                _bring_back(tables, dead, self.clock.now())
        self.notifier.wake()
        return len(chosen)

    async def purge(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        with self._locked() as tables:
            chosen = _chosen(tables, queue, task_ids)
            for dead in chosen:
                del tables.dead[queue, dead.task.run_id, dead.task.id]
        return len(chosen)

    # -- policies -----------------------------------------------------------------------------

    async def _write_policy(
        self,
        queue: str,
        policy: QueuePolicy | None,
        *,
        declared: QueuePolicy | None,
        seen: ExpectedPolicy | None,
        by: str,
        timeout: float | None,
    ) -> bool:
        with self._locked() as tables:
            if declared is not None and tables.declared.get(queue) == declared:
                return True
            if seen is not None and tables.policies.get(queue) != seen.policy:
                return False
            if declared is not None:
                tables.declared[queue] = declared
            tables.policies.pop(queue, None)
            if policy is not None:
                tables.policies[queue] = policy
            change = PolicyChange(queue=queue, at=self.clock.now(), by=by, policy=policy)
            changes = tables.policy_changes.setdefault(queue, [])
            changes.append(change)
            del changes[:-KEPT_CHANGES]
        self.notifier.wake()
        return True

    async def policies(self, *, timeout: float | None = None) -> list[QueuePolicy]:
        with self._locked() as tables:
            return [policy for _, policy in sorted(tables.policies.items())]

    async def policy_changes(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[PolicyChange]:
        with self._locked() as tables:
            return tables.policy_changes.get(queue, [])[::-1][:limit]

    async def stats(
        self, queue: str, *, counted: int = COUNTED, timeout: float | None = None
    ) -> QueueStats:
        with self._locked() as tables:
            return stats_of(tables, queue, self.clock.now())

    async def next_ready_at(
        self, queues: Sequence[str], *, timeout: float | None = None
    ) -> datetime | None:
        with self._locked() as tables:
            return next_ready_at(tables, queues, self.clock.now())

    @contextmanager
    def _held(self, claim: Claim) -> Iterator[tuple[Tables, QueuedTask]]:
        with self._locked() as tables:
            queued = tables.claimed(claim)
            if queued is None:
                key = (claim.queue or "", claim.run_id, claim.task_id or "")
                if key not in tables.tasks:
                    raise NotFound("task", claim.task_id or "")
                current = tables.tasks[key].token
                raise Fenced(claim.subject, token=claim.token, current=current)
            yield tables, queued


def _ready(tables: Tables, queues: Collection[str], now: datetime) -> list[QueuedTask]:
    """What can be handed out, in the order in which it should be."""
    ready = [
        queued
        for queued in tables.tasks.values()
        if queued.task.queue in queues and queued.available(now)
    ]
    return sorted(ready, key=lambda queued: (queued.task.priority, queued.ready_at, queued.order))


def _remove(tables: Tables, queued: QueuedTask) -> None:
    del tables.tasks[queued.task.queue, queued.task.run_id, queued.task.id]


def _bury(tables: Tables, queued: QueuedTask, reason: str, now: datetime) -> None:
    task = queued.task
    _remove(tables, queued)
    tables.dead[task.queue, task.run_id, task.id] = DeadTask(task, reason, now)


def _bring_back(tables: Tables, dead: DeadTask, now: datetime) -> None:
    task = dead.task
    del tables.dead[task.queue, task.run_id, task.id]
    tables.add_task(msgspec.structs.replace(task, attempt=0), now)


def _chosen(tables: Tables, queue: str, task_ids: Collection[str] | None) -> list[DeadTask]:
    return [
        dead
        for dead in tables.dead.values()
        if dead.task.queue == queue and (task_ids is None or dead.task.id in task_ids)
    ]
