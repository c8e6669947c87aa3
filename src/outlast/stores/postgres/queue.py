"""PostgresQueue: the queue port in PostgreSQL, on the tasks that the store there commits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from outlast.errors import Fenced, NotFound, QueueClosed
from outlast.model.claim import Claim
from outlast.model.commit_rules import WakeupKind
from outlast.model.queue_policy import (
    ExpectedPolicy,
    PolicyChange,
    QueuePolicy,
    decode_policy,
)
from outlast.model.run_contents import DeadTask, Delivery, Task
from outlast.model.stats import COUNTED, KEYS_SHOWN, QueueStats
from outlast.model.times import from_micros
from outlast.ports.clock import Clock
from outlast.ports.notifier import Notifier
from outlast.ports.queue import DEFAULT_ATTEMPTS, POLL_SECONDS, Queue, addressed
from outlast.stores.postgres.commit_contents import pack_tasks, task_hash
from outlast.stores.postgres.connection import Location
from outlast.stores.postgres.database import POOL_SIZE, Database
from outlast.stores.postgres.fair_queue import (
    pack_policy,
    to_policy_change,
    to_stats,
)
from outlast.stores.postgres.rows import moment, quote, to_dead_task, unquote
from outlast.stores.postgres.session import Session, lease_clock
from outlast.stores.postgres.tasks import to_delivery


class PostgresQueue(Queue):
    """Named queues in a database. `PostgresStore.queue` gives the one that shares the store's
    connections; with a URL, a pool or a connection it is independent. Options as for the store.
    """

    def __init__(
        self,
        place: Location | Database,
        *,
        schema: str = "outlast",
        prefix: str = "",
        pool_size: int = POOL_SIZE,
        notify: bool = True,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
        poll: float = POLL_SECONDS,
    ) -> None:
        borrowed = isinstance(place, Database)
        if not isinstance(place, Database):
            place = Database(
                place, schema=schema, prefix=prefix, pool_size=pool_size, notify=notify
            )
        notifier = notifier or place.notifier
        super().__init__(clock=clock, notifier=notifier, max_attempts=max_attempts, poll=poll)
        self._session = Session(place, QueueClosed, clock=lease_clock(clock), borrowed=borrowed)

    async def open(self) -> None:
        await self._session.open()

    async def close(self) -> None:
        await self._session.close()
        self.notifier.wake()

    async def enqueue(
        self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, timeout: float | None = None
    ) -> int:
        tasks = addressed(queue, tasks)
        ((added,),) = await self._session.write(
            "enqueue",
            *self._session.time,
            round(delay * 1_000_000),
            *pack_tasks(tasks),
            timeout=timeout,
        )
        self.notifier.wake()
        return int(added)

    async def take_many(
        self,
        queues: Collection[str],
        *,
        owner: str,
        visibility: float,
        limit: int,
        timeout: float | None = None,
    ) -> list[Delivery]:
        await self._session.register_owner(owner)
        span = round(visibility * 1_000_000)
        found = await self._session.write(
            "take_many",
            *self._session.time,
            list(dict.fromkeys(queues)),
            owner,
            span,
            self.max_attempts,
            limit,
            timeout=timeout,
        )
        return [to_delivery(row, span) for row in found]

    async def ack(self, claim: Claim, *, timeout: float | None = None) -> None:
        await self._settle("ack", claim, timeout=timeout)
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
        verb = "nack" if requeue else "drop" if drop else "bury"
        await self._settle(verb, claim, span=delay, reason=reason, timeout=timeout)
        self.notifier.wake()

    async def extend(self, claim: Claim, seconds: float, *, timeout: float | None = None) -> Claim:
        until = await self._settle("extend", claim, span=seconds, timeout=timeout, urgent=True)
        return msgspec.structs.replace(claim, expires_at=until)

    async def len(self, queue: str, *, timeout: float | None = None) -> int:
        ((count,),) = await self._session.read(
            "count_ready", *self._session.time, queue, timeout=timeout
        )
        return int(count)

    async def names(self, *, timeout: float | None = None) -> list[str]:
        found = await self._session.read("find_queues", timeout=timeout)
        return sorted(unquote(name) for (name,) in found)

    async def dead(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[DeadTask]:
        found = await self._session.read("load_dead_tasks", quote(queue), limit, timeout=timeout)
        return [to_dead_task(row) for row in found]

    async def redrive(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        ((count,),) = await self._session.write(
            "redrive", *self._session.time, quote(queue), _named(task_ids), timeout=timeout
        )
        self.notifier.wake()
        return int(count)

    async def purge(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        ((count,),) = await self._session.write(
            "purge", quote(queue), _named(task_ids), timeout=timeout
        )
        return int(count)

    # -- policy ---------------------------------------------------------------------------------

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
        ((written,),) = await self._session.write(
            "write_policy",
            *self._session.time,
            *pack_policy(queue, policy, declared, seen, by),
            timeout=timeout,
        )
        self.notifier.wake()
        return bool(written)

    async def policies(self, *, timeout: float | None = None) -> list[QueuePolicy]:
        found = await self._session.read("load_policies", timeout=timeout)
        return [decode_policy(rules) for (rules,) in found]

    async def policy_changes(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[PolicyChange]:
        found = await self._session.read(
            "load_policy_changes", quote(queue), limit, timeout=timeout
        )
        return [to_policy_change(queue, row) for row in found]

    async def stats(
        self, queue: str, *, counted: int = COUNTED, timeout: float | None = None
    ) -> QueueStats:
        most = counted + 1
        time = self._session.time
        [row] = await self._session.read("queue_stats", *time, queue, most, timeout=timeout)
        keys = await self._session.read(
            "key_stats", *time, queue, KEYS_SHOWN + 1, most, timeout=timeout
        )
        return to_stats(queue, row, keys, counted)

    async def next_ready_at(
        self, queues: Sequence[str], *, timeout: float | None = None
    ) -> datetime | None:
        ((at,),) = await self._session.read(
            "next_ready_at", *self._session.time, list(queues), timeout=timeout
        )
        return moment(at)

    async def _settle(
        self,
        verb: str,
        claim: Claim,
        *,
        span: float = 0.0,
        reason: str = "",
        timeout: float | None,
        urgent: bool = False,
    ) -> datetime:
        """End or change a delivery, if the claim still holds the task."""
        ((verdict, current, until),) = await self._session.write(
            "settle_delivery",
            *self._session.time,
            verb,
            task_hash(claim),
            claim.token,
            round(span * 1_000_000),
            self.max_attempts,
            quote(reason),
            timeout=timeout,
            urgent=urgent,
        )
        if verdict == "not found":
            raise NotFound("task", claim.task_id or "")
        if verdict == "fenced":
            raise Fenced(claim.subject, token=claim.token, current=current)
        return from_micros(until)


def _named(task_ids: Collection[str] | None) -> list[str] | None:
    return None if task_ids is None else [quote(id) for id in task_ids]
