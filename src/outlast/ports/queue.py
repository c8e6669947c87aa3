"""The queue port: tasks handed out under a lease, never popped.

A task is ready, delayed, in flight or dead::

    enqueue ──▶ delayed ──time──▶ ready ──dequeue──▶ in flight ──ack──▶ gone
                   ▲                ▲                  │  │
                   └── nack(delay) ─┴── lease expires ─┘  └─ nack(requeue=False),
                                                             or too many attempts ──▶ dead

A queue works without the engine, too. Delivery is at least once: a worker must tolerate that the same
task is delivered twice.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import msgspec

from outlast.errors import InvalidValue, Unsupported
from outlast.model.claim import Claim
from outlast.model.ids import check_name
from outlast.model.queue_policy import (
    ExpectedPolicy,
    PolicyChange,
    QueuePolicy,
    check_policy,
    check_queue,
)
from outlast.model.run_contents import DeadTask, Delivery, Task
from outlast.model.stats import COUNTED, QueueStats
from outlast.model.times import check_delay
from outlast.model.validation import check_task
from outlast.ports.clock import Clock, SystemClock
from outlast.ports.notifier import LocalNotifier, Notifier
from outlast.ports.port import Port, check_limit, check_owner, check_ttl, checks

_NO_POLICY = (
    "{} has no queue policies: use the queue of a store (`store.queue()`), and this one as its wake-up "
    "channel"
)
DEFAULT_VISIBILITY = 30.0
DEFAULT_ATTEMPTS = 5
POLL_SECONDS = 1.0


def _check_queue_name(queue: object) -> None:
    check_name(queue, "queue name")


def _check_author(by: object) -> None:
    check_name(by, "by")


def _check_queues(queues: Collection[str]) -> None:
    if isinstance(queues, str):
        raise InvalidValue(f"queues={queues!r}: give the names of queues in a list")
    for queue in queues:
        _check_queue_name(queue)


def _check_tasks(
    _: Queue, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, **__: object
) -> None:
    _check_queue_name(queue)
    check_delay(delay)
    for task in addressed(queue, tasks):
        check_task(task)


def addressed(queue: str, tasks: Sequence[Task], now: datetime | None = None) -> list[Task]:
    """The tasks with the name of this queue, and with `now` if the database does not set the time."""
    given = {"queue": queue} if now is None else {"queue": queue, "enqueued_at": now}
    return [msgspec.structs.replace(task, **given) for task in tasks]


class Queue(Port):
    """Named queues of tasks. Every method is safe from several processes at once."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        max_attempts: int = DEFAULT_ATTEMPTS,
        poll: float = POLL_SECONDS,
    ) -> None:
        if max_attempts < 1:
            raise InvalidValue(f"max_attempts={max_attempts}: a task needs at least one attempt")
        self.clock: Clock = clock or SystemClock()
        self.notifier: Notifier = notifier or LocalNotifier()
        self.max_attempts = max_attempts
        self._poll = poll

    async def open(self) -> None:
        """Connect. Opening an open queue does nothing."""

    @abstractmethod
    async def close(self) -> None:
        """Stop: calls after it, and calls that wait now, raise `QueueClosed`. Tasks stay."""

    @abstractmethod
    @checks(_check_tasks)
    async def enqueue(
        self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, timeout: float | None = None
    ) -> int:
        """Add tasks to a queue, all or nothing; how many were new. Idempotent: a task whose id is in the
        queue already, for the same run, is left as it is. With `delay` (seconds) or `Task.run_at` it
        is not delivered before that time."""

    @abstractmethod
    @checks(queues=_check_queues, owner=check_owner, visibility=check_ttl, limit=check_limit)
    async def take_many(
        self,
        queues: Collection[str],
        *,
        owner: str,
        visibility: float,
        limit: int,
        timeout: float | None = None,
    ) -> list[Delivery]:
        """Hand out up to `limit` ready tasks of these queues now.

        Tasks with a key take turns by key, within the policy of their queue (`set_policy`); those of
        one key, and those without, are ordered by priority, the smallest first, then by the longest
        wait. Attempts are counted and leases set in the same atomic step. A task with an expired lease
        is ready again; one without attempts left becomes dead instead.
        """

    @checks(queue=_check_queue_name, owner=check_owner, visibility=check_ttl)
    async def take(
        self, queue: str, *, owner: str, visibility: float, timeout: float | None = None
    ) -> Delivery | None:
        """Hand out the next ready task of a queue now, or None: `take_many` of one."""
        found = await self.take_many(
            [queue], owner=owner, visibility=visibility, limit=1, timeout=timeout
        )
        return found[0] if found else None

    @checks(queue=_check_queue_name, owner=check_owner, visibility=check_ttl)
    async def dequeue(
        self,
        queue: str,
        *,
        owner: str = "worker",
        visibility: float = DEFAULT_VISIBILITY,
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> Delivery | None:
        """`take`, waiting up to `wait` seconds for a task to come; None if none did."""
        if not wait >= 0:  # also for NaN
            raise InvalidValue(f"wait={wait} is not possible: use 0 to poll once, or more seconds")
        deadline = self.clock.monotonic() + wait
        while True:
            wakeups = self.notifier.wakeups
            delivery = await self.take(queue, owner=owner, visibility=visibility, timeout=timeout)
            left = deadline - self.clock.monotonic()
            if delivery is not None or left <= 0:
                return delivery
            await self.notifier.wait(self.clock, min(left, self._poll), since=wakeups)

    @abstractmethod
    async def ack(self, claim: Claim, *, timeout: float | None = None) -> None:
        """The task is done: remove it. `Fenced` if the claim was lost, `NotFound` if the task is gone:
        another worker has it, or has finished it."""

    @abstractmethod
    @checks(delay=check_delay)
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
        """The task was not done. Return it, ready after `delay` seconds. With ``requeue=False``, or
        without attempts left, it becomes dead with `reason`; with `drop` too it is deleted. `Fenced`
        and `NotFound` as for `ack`."""

    @abstractmethod
    @checks(seconds=check_ttl)
    async def extend(self, claim: Claim, seconds: float, *, timeout: float | None = None) -> Claim:
        """Set the lease to `seconds` from now. `Fenced` and `NotFound` as for `ack`."""

    @abstractmethod
    @checks(queue=_check_queue_name)
    async def len(self, queue: str, *, timeout: float | None = None) -> int:
        """How many tasks are ready now: neither delayed nor in flight nor dead."""

    async def names(self, *, timeout: float | None = None) -> list[str]:
        """The queues that hold a task in any state, in order. An empty queue is not known. `Unsupported`
        if the queue cannot list them."""
        raise Unsupported(f"{type(self).__name__} does not know its queues: name them")

    @abstractmethod
    @checks(limit=check_limit)
    async def dead(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[DeadTask]:
        """The dead tasks of a queue, the oldest first."""

    @abstractmethod
    async def redrive(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        """Make dead tasks (all, or those) ready again with fresh attempts; how many."""

    @abstractmethod
    async def purge(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        """Remove dead tasks (all, or those) for good; how many."""

    # -- policies -----------------------------------------------------------------------------

    async def set_policy(
        self, policy: QueuePolicy, *, by: str, timeout: float | None = None
    ) -> None:
        """Set the policy of a queue, for all workers at once. `by` names the author in the audit."""
        name = check_policy(policy).queue
        await self._write_policy(name, policy, declared=None, seen=None, by=by, timeout=timeout)

    async def change_policy(
        self,
        queue: str,
        change: Callable[[QueuePolicy], QueuePolicy],
        *,
        by: str,
        timeout: float | None = None,
    ) -> QueuePolicy:
        """Replace the policy of a queue by `change(policy)`, and return that. Optimistic: after a
        concurrent change, `change` is called again with the new policy."""
        check_queue(queue)
        while True:
            seen = await self._seen(queue, timeout)
            policy = check_policy(change(seen.policy or QueuePolicy(queue=queue)))
            if policy.queue != queue:
                raise InvalidValue(
                    f"the policy of {queue!r} cannot become that of {policy.queue!r}"
                )
            if await self._write_policy(
                queue, policy, declared=None, seen=seen, by=by, timeout=timeout
            ):
                return policy

    async def drop_policy(self, queue: str, *, by: str, timeout: float | None = None) -> None:
        """Remove the policy of a queue."""
        name = check_queue(queue)
        await self._write_policy(name, None, declared=None, seen=None, by=by, timeout=timeout)

    async def declare_policy(
        self, policy: QueuePolicy, *, by: str = "code", timeout: float | None = None
    ) -> None:
        """Set the policy that the code declares, when a process starts. If the code declares the same as
        last time, nothing changes: a restart must not undo a change made at run time. A paused queue
        stays paused."""
        name = check_policy(policy).queue
        while True:
            seen = await self._seen(name, timeout)
            paused = policy.paused or (seen.policy is not None and seen.policy.paused)
            rules = msgspec.structs.replace(policy, paused=paused)
            if await self._write_policy(
                name, rules, declared=policy, seen=seen, by=by, timeout=timeout
            ):
                return

    async def _seen(self, queue: str, timeout: float | None) -> ExpectedPolicy:
        policies = {policy.queue: policy for policy in await self.policies(timeout=timeout)}
        return ExpectedPolicy(policies.get(queue))

    @checks(by=_check_author)
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
        """Store a policy with an audit line; the last `KEPT_CHANGES` of those are kept. With `declared`
        nothing is written if the code declared the same last. With `seen` nothing is written, and False
        is returned, if the policy has changed since."""
        raise Unsupported(_NO_POLICY.format(type(self).__name__))

    async def policies(self, *, timeout: float | None = None) -> list[QueuePolicy]:
        """The policies of all queues that have one, by name."""
        raise Unsupported(_NO_POLICY.format(type(self).__name__))

    @checks(limit=check_limit)
    async def policy_changes(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[PolicyChange]:
        """The changes of a queue's policy, the last one first."""
        raise Unsupported(_NO_POLICY.format(type(self).__name__))

    @checks(queue=check_queue, counted=check_limit)
    async def stats(
        self, queue: str, *, counted: int = COUNTED, timeout: float | None = None
    ) -> QueueStats:
        """The statistics of a queue, with all its steps, at a bounded cost: tasks are counted up to
        `counted`, and `QueueStats.at_least` names the numbers where that was reached."""
        raise Unsupported(_NO_POLICY.format(type(self).__name__))

    async def next_ready_at(
        self, queues: Sequence[str], *, timeout: float | None = None
    ) -> datetime | None:
        """When a task of these queues may become ready by time alone: a delayed task, an expiring lease,
        a rate that allows more. None: not by time. A hint for pollers; a queue that cannot find it
        cheaply returns its present."""
        return self.clock.now()
