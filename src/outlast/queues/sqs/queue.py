"""SqsQueue: the queue port on Amazon SQS, as far as SQS supports it.

::

    enqueue       SendMessageBatch            ack             DeleteMessage
    take_many     ReceiveMessage, up to ten   nack(delay)     ChangeMessageVisibility(delay)
    dequeue       the same, long polling      nack for good   to the dead letters, or deleted
    len           ApproximateNumberOfMessages extend          ChangeMessageVisibility(seconds)

Delivery is at least once: tasks must be idempotent. There are no priorities; a standard queue has no order, a FIFO
queue keeps that of the tasks of one run. SQS delays a message for at most 15 minutes and hides it for at most
12 hours; longer delays hide it again when it arrives early, or send it again. A claim is valid in the process that
got it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

import msgspec

from outlast.errors import InvalidValue
from outlast.model.claim import Claim
from outlast.model.run_contents import DeadTask, Delivery, Task
from outlast.ports.clock import Clock
from outlast.ports.notifier import Notifier
from outlast.ports.queue import (
    DEFAULT_ATTEMPTS,
    DEFAULT_VISIBILITY,
    POLL_SECONDS,
    Queue,
    addressed,
)
from outlast.queues.sqs.client import BATCH, Calls, SqsClient
from outlast.queues.sqs.message import check_size, letter_of
from outlast.queues.sqs.queue_urls import QueueUrls
from outlast.queues.sqs.receiver import Holdings, Receiver, VisibilityKeeper
from outlast.queues.sqs.sender import DeadLetter, Sender, collect, revived, show_again

LONGEST_POLL = 20


class SqsQueue(Queue):
    """Named queues in SQS.

    A boto3 `client` that you pass in is used and never closed; else one is created, with `region` and `endpoint` if
    given and credentials as AWS tools find them. Queue ``mail`` is the SQS queue ``{prefix}mail`` (with `fifo`:
    ``{prefix}mail.fifo``), or the one in `urls`. `create` creates missing queues. Dead letters go to
    ``{prefix}mail-dead``; with ``dead_suffix=None`` they are left to the redrive policy of the queue. `long_poll`
    (seconds, 0 to 20) is how long one request waits for a task.
    """

    def __init__(
        self,
        client: SqsClient | None = None,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        prefix: str = "",
        urls: Mapping[str, str] | None = None,
        fifo: bool = False,
        create: bool = False,
        dead_suffix: str | None = "-dead",
        long_poll: int = LONGEST_POLL,
        max_attempts: int = DEFAULT_ATTEMPTS,
        clock: Clock | None = None,
        notifier: Notifier | None = None,
        poll: float = POLL_SECONDS,
    ) -> None:
        super().__init__(clock=clock, notifier=notifier, max_attempts=max_attempts, poll=poll)
        if not 0 <= long_poll <= LONGEST_POLL:
            raise InvalidValue(f"long_poll={long_poll}: SQS waits 0 to {LONGEST_POLL} seconds")
        if dead_suffix == "":
            raise InvalidValue("dead_suffix is empty: dead letters need a queue of their own")
        self._long_poll = int(long_poll)
        self._calls = Calls(client, region, endpoint)
        self._places = QueueUrls(
            self._calls, prefix=prefix, urls=urls, fifo=fifo, create=create, dead_suffix=dead_suffix
        )
        self._holdings = Holdings()
        self._mail = Sender(self._calls, self._places, self.clock)
        self._keeper = VisibilityKeeper(self._calls, self._mail, self._holdings, self.clock)
        self._taker = Receiver(
            calls=self._calls,
            places=self._places,
            mail=self._mail,
            keeper=self._keeper,
            holdings=self._holdings,
            clock=self.clock,
        )

    async def open(self) -> None:
        self._calls.open()

    async def close(self) -> None:
        self._calls.close()
        self.notifier.wake()

    async def enqueue(
        self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, timeout: float | None = None
    ) -> int:
        """Send tasks in batches of ten; how many were sent (SQS does not tell which of them a FIFO queue knew). All are
        validated before one is sent. A failure in between is `UnknownOutcome`: enqueue them again, since delivery is
        at least once."""
        now = self.clock.now()
        stamped = addressed(queue, tasks, now)
        waits = [
            max(delay, (task.run_at - now).total_seconds() if task.run_at else 0.0)
            for task in stamped
        ]
        sent = [letter_of(task) for task in stamped]
        for letter in sent:
            check_size(letter)
        await self._mail.send(queue, list(zip(sent, waits, strict=True)), timeout=timeout)
        self.notifier.wake()
        return len(stamped)

    async def take_many(
        self,
        queues: Collection[str],
        *,
        owner: str,
        visibility: float,
        limit: int,
        timeout: float | None = None,
    ) -> list[Delivery]:
        """As in the port, but queue by queue, with at most ten tasks per request."""
        taken: list[Delivery] = []
        for queue in queues:
            while room := min(limit - len(taken), BATCH):
                found = await self._taker.take(
                    queue,
                    room,
                    owner=owner,
                    visibility=visibility,
                    max_attempts=self.max_attempts,
                    timeout=timeout,
                )
                taken += found
                if not found:
                    break
        return taken

    async def dequeue(
        self,
        queue: str,
        *,
        owner: str = "worker",
        visibility: float = DEFAULT_VISIBILITY,
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> Delivery | None:
        """`take`, waiting up to `wait` seconds: by long polling for whole seconds, else locally."""
        if not wait >= 0:  # not a number is neither
            raise InvalidValue(f"wait={wait} is not possible: use 0 to look once, or more")
        deadline = self.clock.monotonic() + wait
        while True:
            wakeups = self.notifier.wakeups
            poll = min(self._long_poll, int(max(deadline - self.clock.monotonic(), 0)))
            found = await self._taker.take(
                queue,
                1,
                owner=owner,
                visibility=visibility,
                max_attempts=self.max_attempts,
                wait=poll,
                timeout=timeout,
            )
            left = deadline - self.clock.monotonic()
            if found or left <= 0:
                return found[0] if found else None
            if not poll:
                await self.notifier.wait(self.clock, min(left, self._poll), since=wakeups)

    async def ack(self, claim: Claim, *, timeout: float | None = None) -> None:
        self._calls.check_open()
        async with self._keeper.holding(claim) as held:
            await self._keeper.delete(held, timeout=timeout)
            self._holdings.finish(held)

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
        """As in the port: visible again after `delay`, moved to the dead letters, or with `drop` deleted. With dead
        letters left to SQS the message becomes visible at once, so that the redrive policy can act."""
        self._calls.check_open()
        async with self._keeper.holding(claim) as held:
            if requeue and held.attempt < self.max_attempts:
                await self._keeper.hold_back(held, delay, timeout=timeout)
                self._holdings.lose(held)
            elif drop and not requeue:
                await self._keeper.delete(held, timeout=timeout)
                self._holdings.finish(held)
            elif self._places.dead_suffix is None:
                await self._keeper.hold_back(held, 0, timeout=timeout)
                self._holdings.lose(held)
            else:
                await self._mail.bury(
                    claim.queue or "",
                    held.message,
                    attempt=held.attempt,
                    reason=reason,
                    timeout=timeout,
                )
                self._holdings.finish(held)
        self.notifier.wake()

    async def extend(self, claim: Claim, seconds: float, *, timeout: float | None = None) -> Claim:
        """Hide the task for `seconds` from now. SQS hides a message for 12 hours; after that a copy replaces it (see
        docs/reference/sqs.md for the cost)."""
        self._calls.check_open()
        async with self._keeper.holding(claim) as held:
            until = self.clock.now() + timedelta(seconds=seconds)
            await self._keeper.keep(held, seconds, timeout=timeout)
        return msgspec.structs.replace(claim, expires_at=until)

    async def len(self, queue: str, *, timeout: float | None = None) -> int:
        """The approximate number of ready tasks, as estimated by SQS."""
        place = await self._places.of(queue, timeout=timeout)
        about = "ApproximateNumberOfMessages"
        answer = await self._calls.call(
            "get_queue_attributes",
            place.name,
            timeout=timeout,
            QueueUrl=place.url,
            AttributeNames=[about],
        )
        return int(answer.get("Attributes", {}).get(about, 0))

    # -- dead letters -------------------------------------------------------------------------

    async def dead(
        self, queue: str, *, limit: int = 100, timeout: float | None = None
    ) -> list[DeadTask]:
        """Dead tasks, longest dead first among those that SQS returned. They are hidden from a concurrent list for a
        moment."""
        place = await self._places.dead(queue, timeout=timeout)
        found = await collect(self._calls, place, queue=queue, limit=limit, timeout=timeout)
        await show_again(self._calls, place, found, timeout=timeout)
        return [one.dead for one in found]

    async def redrive(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        place = await self._places.dead(queue, timeout=timeout)
        source = await self._places.of(queue, timeout=timeout)

        async def send(chosen: list[DeadLetter]) -> None:
            entries = [revived(one, fifo=source.is_fifo) for one in chosen]
            await self._mail.post(source, entries, timeout=timeout)

        count = await self._mail.remove_dead(place, queue, task_ids, first=send, timeout=timeout)
        self.notifier.wake()
        return count

    async def purge(
        self, queue: str, task_ids: Collection[str] | None = None, *, timeout: float | None = None
    ) -> int:
        place = await self._places.dead(queue, timeout=timeout)
        return await self._mail.remove_dead(place, queue, task_ids, first=None, timeout=timeout)
