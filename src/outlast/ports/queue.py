"""The queue port: tasks handed out under a lease, never popped.

A task is ready, delayed, in flight or dead::

    enqueue ──▶ delayed ──time──▶ ready ──dequeue──▶ in flight ──ack──▶ gone
                   ▲                ▲                  │  │
                   └── nack(delay) ─┴── lease expires ─┘  └─ nack(requeue=False),
                                                             or too many attempts ──▶ dead

It works on its own, without the engine. A queue is a hint to look, not the truth: the same task
may be delivered twice, and whoever works on it must be able to take that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

import msgspec

from outlast.errors import InvalidValue, Unsupported
from outlast.model.claim import Claim, check_ttl
from outlast.model.ids import check_name
from outlast.model.query import check_limit
from outlast.model.queue_policy import (
    ExpectedPolicy,
    PolicyChange,
    QueuePolicy,
    check_policy,
    check_queue,
)
from outlast.model.stats import COUNTED, QueueStats
from outlast.model.task import DeadTask, Delivery, Task
from outlast.model.validation import check_delay, check_task
from outlast.ports.clock import Clock, SystemClock
from outlast.ports.notifier import LocalNotifier, Notifier

_NO_POLICY = (
    "{} has no rules for its queues: use the queue of a store (`store.queue()`), and a foreign queue "
    "as its wake-up channel"
)
DEFAULT_VISIBILITY = 30.0
DEFAULT_ATTEMPTS = 5
POLL_SECONDS = 1.0


class Queue(ABC):
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

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @abstractmethod
    async def enqueue(
        self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, timeout: float | None = None
    ) -> int:
        """Add tasks to a queue, all or nothing; how many were new. A task whose id waits in that
        queue already, for the same run, is left alone. `delay` (seconds) or `Task.run_at` keep it
        from being handed out before its time."""

    @abstractmethod
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

        Tasks with a key take turns by key, within the rules of their queue (`set_policy`); those of
        one key, and those without, are served by the smallest priority, then by who has been ready
        longest. Attempts are counted and leases set in the same step. A task whose lease ran out is
        ready again; one that has used up its attempts goes to the dead instead.
        """

    async def take(
        self, queue: str, *, owner: str, visibility: float, timeout: float | None = None
    ) -> Delivery | None:
        """Hand out the next ready task of a queue now, or None: `take_many` of one."""
        found = await self.take_many(
            [queue], owner=owner, visibility=visibility, limit=1, timeout=timeout
        )
        return found[0] if found else None

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
        if not wait >= 0:  # not a number is neither
            raise InvalidValue(f"wait={wait} is not possible: use 0 to look once, or more")
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
        """The task is done: remove it. `Fenced` if the claim was lost, `NotFound` if the task is
        gone; either way somebody else has dealt with it."""

    @abstractmethod
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
        """The task was not done. Put it back, ready after `delay` seconds; or, with
        ``requeue=False`` or no attempt left, among the dead with `reason`; with `drop` too,
        remove it for good. `Fenced` and `NotFound` as for `ack`."""

    @abstractmethod
    async def extend(self, claim: Claim, seconds: float, *, timeout: float | None = None) -> Claim:
        """Set the lease to `seconds` from now. `Fenced` and `NotFound` as for `ack`."""

    @abstractmethod
    async def len(self, queue: str, *, timeout: float | None = None) -> int:
        """How many tasks are ready now: neither delayed nor in flight nor dead."""

    async def names(self, *, timeout: float | None = None) -> list[str]:
        """The queues that hold a task, whether it is ready, delayed, in flight or dead, in order.
        One that is empty is not known. `Unsupported` where only the names of others could tell."""
        raise Unsupported(f"{type(self).__name__} does not know its queues: name them")

    @abstractmethod
    async def dead(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[DeadTask]:
        """The dead tasks of a queue, the longest dead first."""

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
        """Give a queue these rules instead of those it has, for all workers at once. `by` is who
        did it, for the audit."""
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
        """Give a queue what `change` makes of its rules; those. Of several who change the rules of one
        queue at once, each sees what the others have done: `change` may be called again."""
        check_queue(queue)
        while True:
            seen = await self._seen(queue, timeout)
            policy = check_policy(change(seen.policy or QueuePolicy(queue=queue)))
            if policy.queue != queue:
                raise InvalidValue(f"rules of {queue!r} cannot become those of {policy.queue!r}")
            if await self._write_policy(
                queue, policy, declared=None, seen=seen, by=by, timeout=timeout
            ):
                return policy

    async def drop_policy(self, queue: str, *, by: str, timeout: float | None = None) -> None:
        """Take the rules of a queue away."""
        name = check_queue(queue)
        await self._write_policy(name, None, declared=None, seen=None, by=by, timeout=timeout)

    async def declare_policy(
        self, policy: QueuePolicy, *, by: str = "code", timeout: float | None = None
    ) -> None:
        """What a process says at its start. If the code says the same as last time, the rules stay
        as they are: somebody may have changed them since, and a restart must not undo that. New code
        resumes nothing that somebody has paused."""
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
        """Store rules with an audit line, and keep the last `KEPT_CHANGES` of those. With `declared`
        nothing is written if that is what the code said last. With `seen` nothing is written, and the
        answer is False, if the rules are others by now."""
        raise Unsupported(_NO_POLICY.format(type(self).__name__))

    async def policies(self, *, timeout: float | None = None) -> list[QueuePolicy]:
        """The rules of all queues that have any, by name."""
        raise Unsupported(_NO_POLICY.format(type(self).__name__))

    async def policy_changes(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[PolicyChange]:
        """Who changed the rules of a queue, the last change first."""
        raise Unsupported(_NO_POLICY.format(type(self).__name__))

    async def stats(
        self, queue: str, *, counted: int = COUNTED, timeout: float | None = None
    ) -> QueueStats:
        """How a queue stands, with all its steps, at a cost that does not grow with it: what has to
        be counted is counted to `counted`, and `QueueStats.at_least` says where that was the end."""
        raise Unsupported(_NO_POLICY.format(type(self).__name__))

    async def next_ready_at(
        self, queues: Sequence[str], *, timeout: float | None = None
    ) -> datetime | None:
        """When something may be ready in these queues by time alone: a delayed task, the end of a
        lease, a start that is no longer counted. None: not by time. A hint for sleepers; a queue
        that cannot tell cheaply answers with its present."""
        return self.clock.now()


def addressed(
    queue: str, tasks: Sequence[Task], delay: float, now: datetime | None = None
) -> list[Task]:
    """What `enqueue` calls first: refuse bad input. The tasks, as those of this queue, and added at
    `now` if the database does not say when."""
    check_name(queue, "queue name")
    check_delay(delay)
    given = {"queue": queue} if now is None else {"queue": queue, "enqueued_at": now}
    found = [msgspec.structs.replace(task, **given) for task in tasks]
    for task in found:
        check_task(task)
    return found


def check_taking(queues: Collection[str], owner: str, visibility: float, limit: int) -> None:
    """What `take_many` calls first: refuse bad input."""
    if isinstance(queues, str):
        raise InvalidValue(f"queues={queues!r}: give the names of queues in a list")
    for queue in queues:
        check_name(queue, "queue name")
    check_name(owner, "owner")
    check_ttl(visibility)
    check_limit(limit)
