"""SqliteQueue: the queue port in a file, on the tasks that commits of the store create."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from outlast.errors import Fenced, NotFound, QueueClosed
from outlast.model.claim import Claim
from outlast.model.commit_rules import WakeupKind
from outlast.model.queue_policy import ExpectedPolicy, PolicyChange, QueuePolicy
from outlast.model.run_contents import DeadTask, Delivery, Task
from outlast.model.stats import COUNTED, QueueStats
from outlast.model.times import from_micros, to_micros
from outlast.ports.clock import Clock, steady
from outlast.ports.notifier import Notifier
from outlast.ports.queue import DEFAULT_ATTEMPTS, POLL_SECONDS, Queue, addressed
from outlast.stores.sqlite import fair_queue, queue_stats
from outlast.stores.sqlite.connection import Connect, Connection, Synchronous, connect, scalar
from outlast.stores.sqlite.database import UNKNOWN_ROWS, Database
from outlast.stores.sqlite.fair_queue import next_tasks
from outlast.stores.sqlite.notifier import SqliteNotifier
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import Session
from outlast.stores.sqlite.tasks import (
    DeadTaskRow,
    TaskRow,
    find_alive,
    find_task,
    has_available,
    insert_tasks,
    lease_all,
    queue_names,
    to_task,
)

COUNT_CHANGES = query("count_changes")
COUNT_READY = query("count_ready")
RENEW_TASK = query("renew_task")
RETURN_TASK = query("return_task")
DELETE_TASK = query("delete_task")
BURY_TASK = query("bury_task")
LOAD_DEAD_TASKS = query("load_dead_tasks")
FIND_DEAD_TASKS = query("find_dead_tasks")
REDRIVE_TASK = query("redrive_task")
PURGE_TASK = query("purge_task")


class SqliteQueue(Queue):
    """Named queues in a file. `SqliteStore.queue` returns the one on the store's database; with a path
    or URL it opens its own. Options as for `SqliteStore`."""

    def __init__(
        self,
        location: str | os.PathLike[str] | Database | Session,
        *,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
        poll: float = POLL_SECONDS,
        synchronous: Synchronous = "full",
        inline: bool = True,
        network_storage: bool = False,
        connect: Connect = connect,
    ) -> None:
        super().__init__(
            clock=steady(clock), notifier=notifier, max_attempts=max_attempts, poll=poll
        )
        if isinstance(location, Session):
            self._session = location
        elif isinstance(location, Database):
            self._session = Session(location, QueueClosed, borrowed=True)
        else:
            database = Database(
                location,
                synchronous=synchronous,
                inline=inline,
                network_storage=network_storage,
                connect=connect,
            )
            self._session = Session(database, QueueClosed)
            if notifier is None:
                self.notifier = SqliteNotifier(database.foreign_version, database.liveness.has_dead)

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        await self._session.close()
        self.notifier.wake()

    async def enqueue(
        self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, timeout: float | None = None
    ) -> int:
        tasks = addressed(queue, tasks)

        def work(db: Connection) -> int:
            now = self.clock.now()
            before = scalar(db, COUNT_CHANGES)
            later = to_micros(now + timedelta(seconds=delay))
            insert_tasks(db, tasks, now=to_micros(now), earliest=later)
            return int(scalar(db, COUNT_CHANGES) - before)

        added = await self._session.write(work, rows=len(tasks), timeout=timeout)
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
        await self._session.register_owner(owner, self.clock, timeout=timeout)
        # A read first: it is cheap, and keeps pollers away from the writer's lock.
        if not await self._session.read(
            lambda db: has_available(db, queues, self.clock.now()), timeout=timeout
        ):
            return []

        def work(db: Connection) -> list[Delivery]:
            now = self.clock.now()
            taken: list[Delivery] = []
            while len(taken) < limit:
                found = next_tasks(db, queues, limit - len(taken), now)
                if not found:
                    break
                for task in found:
                    if task.attempt >= self.max_attempts:
                        _bury(db, task, f"no success in {task.attempt} attempts", now)
                    task.attempt += 1
                fresh = [task for task in found if task.attempt <= self.max_attempts]
                claims = lease_all(db, fresh, owner, visibility, now)
                taken += map(Delivery, map(to_task, fresh), claims)
            return taken

        return await self._session.write(work, rows=limit, timeout=timeout)

    async def ack(self, claim: Claim, *, timeout: float | None = None) -> None:
        await self._with_task(claim, _delete, timeout)
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

        def work(db: Connection, task: TaskRow) -> None:
            now = self.clock.now()
            if requeue and task.attempt < self.max_attempts:
                db.execute(RETURN_TASK, (to_micros(now + timedelta(seconds=delay)), task.key))
            elif drop and not requeue:
                _delete(db, task)
            else:
                _bury(db, task, reason, now)

        await self._with_task(claim, work, timeout)
        self.notifier.wake()

    async def extend(self, claim: Claim, seconds: float, *, timeout: float | None = None) -> Claim:
        until = self.clock.now() + timedelta(seconds=seconds)

        def work(db: Connection, task: TaskRow) -> None:
            if find_alive(db, claim, self.clock.now()) is None:
                raise Fenced(claim.subject, token=claim.token, current=task.token)
            db.execute(RENEW_TASK, (to_micros(until), task.key))

        await self._with_task(claim, work, timeout)
        return msgspec.structs.replace(claim, expires_at=until)

    async def len(self, queue: str, *, timeout: float | None = None) -> int:
        return await self._session.read(
            lambda db: int(scalar(db, COUNT_READY, _at(queue, self.clock.now()))),
            timeout=timeout,
            small=False,
        )

    async def names(self, *, timeout: float | None = None) -> list[str]:
        return await self._session.read(queue_names, timeout=timeout, small=False)

    async def dead(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[DeadTask]:
        rows = await self._session.read_page(
            lambda db, limit: db.execute(LOAD_DEAD_TASKS, (queue, limit)).fetchall(),
            limit=limit,
            timeout=timeout,
        )
        dead = [DeadTaskRow(*row) for row in rows]
        return [DeadTask(to_task(row), row.reason, from_micros(row.died_at)) for row in dead]

    async def redrive(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        def work(db: Connection) -> int:
            now = to_micros(self.clock.now())
            keys = _chosen(db, queue, task_ids)
            for key in keys:
                db.execute(REDRIVE_TASK, {"key": key, "now": now})
                db.execute(PURGE_TASK, (key,))
            return len(keys)

        count = await self._session.write(work, rows=UNKNOWN_ROWS, timeout=timeout)
        self.notifier.wake()
        return count

    async def purge(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        def work(db: Connection) -> int:
            keys = _chosen(db, queue, task_ids)
            db.executemany(PURGE_TASK, [(key,) for key in keys])
            return len(keys)

        return await self._session.write(work, rows=UNKNOWN_ROWS, timeout=timeout)

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
        def work(db: Connection) -> bool:
            now = self.clock.now()
            return fair_queue.write_policy(db, queue, policy, declared, seen, by=by, now=now)

        written = await self._session.write(work, rows=UNKNOWN_ROWS, timeout=timeout)
        self.notifier.wake()
        return written

    async def policies(self, *, timeout: float | None = None) -> list[QueuePolicy]:
        return await self._session.read(fair_queue.load_policies, timeout=timeout, small=False)

    async def policy_changes(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[PolicyChange]:
        return await self._session.read_page(
            lambda db, limit: fair_queue.load_policy_changes(db, queue, limit),
            limit=limit,
            timeout=timeout,
        )

    async def stats(
        self, queue: str, *, counted: int = COUNTED, timeout: float | None = None
    ) -> QueueStats:
        return await self._session.read(
            lambda db: queue_stats.stats_of(db, queue, self.clock.now(), counted),
            timeout=timeout,
            small=False,
        )

    async def next_ready_at(
        self, queues: Sequence[str], *, timeout: float | None = None
    ) -> datetime | None:
        return await self._session.read(
            lambda db: queue_stats.next_ready_at(db, queues, self.clock.now()), timeout=timeout
        )

    async def _with_task(
        self, claim: Claim, work: Callable[[Connection, TaskRow], None], timeout: float | None
    ) -> None:
        """Run `work` on the task, if the claim still holds it."""

        def checked(db: Connection) -> None:
            task = find_task(db, claim)
            if task is None:
                raise NotFound("task", claim.task_id or "")
            if task.owner is None or task.token != claim.token:
                raise Fenced(claim.subject, token=claim.token, current=task.token)
            work(db, task)

        await self._session.write(checked, timeout=timeout)


def _at(queue: str, now: datetime) -> dict[str, object]:
    return {"queue": queue, "now": to_micros(now)}


def _delete(db: Connection, task: TaskRow) -> None:
    db.execute(DELETE_TASK, (task.key,))


def _bury(db: Connection, task: TaskRow, reason: str, now: datetime) -> None:
    db.execute(BURY_TASK, {"key": task.key, "reason": reason, "now": to_micros(now)})
    _delete(db, task)


def _chosen(db: Connection, queue: str, task_ids: Collection[str] | None) -> list[int]:
    # Filtered in Python: a list cannot be a parameter, and json_each truncates text at a NUL.
    return [
        key
        for key, id in db.execute(FIND_DEAD_TASKS, (queue,)).fetchall()
        if task_ids is None or id in task_ids
    ]
