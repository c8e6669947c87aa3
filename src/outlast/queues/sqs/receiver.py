"""Received messages as deliveries: receiving claims the task, unless it is not due, not for this process, or dead."""

from __future__ import annotations

from datetime import timedelta
from math import ceil

from outlast.errors import StoreFault, TryAgain
from outlast.model.claim import Claim
from outlast.model.run_contents import Delivery, Task
from outlast.model.times import to_micros
from outlast.ports.clock import Clock
from outlast.queues.sqs.client import Calls, SqsAddress
from outlast.queues.sqs.message import Message, Newer, NotOurs, TaskMessage, read, task_of
from outlast.queues.sqs.queue_urls import QueueUrls
from outlast.queues.sqs.sender import Sender
from outlast.queues.sqs.visibility import MAX_HIDDEN_S, Held, Holdings, VisibilityKeeper


class Receiver:
    """Receives tasks."""

    def __init__(
        self,
        *,
        calls: Calls,
        places: QueueUrls,
        mail: Sender,
        keeper: VisibilityKeeper,
        holdings: Holdings,
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._places = places
        self._mail = mail
        self._keeper = keeper
        self._holdings = holdings
        self._clock = clock

    async def take(
        self,
        queue: str,
        count: int,
        *,
        owner: str,
        visibility: float,
        max_attempts: int,
        wait: int = 0,
        timeout: float | None,
    ) -> list[Delivery]:
        """The deliveries of one request, or of the next one if the first had none for this process."""
        lease = min(visibility, MAX_HIDDEN_S)
        place = await self._places.of(queue, timeout=timeout)
        while True:
            since, now = self._clock.monotonic(), self._clock.now()
            found = await self._calls.receive(
                place, seconds=ceil(lease), wait=wait, count=count, timeout=timeout
            )
            if not found:
                return []
            if wait:  # it may have come late in the wait: the lease counts from now
                since, now = self._clock.monotonic(), self._clock.now()
            wait = 0  # what comes next is looked for, not waited for
            taken, failure = [], None
            for message in found:
                try:
                    opened = await self._open(queue, place, message, max_attempts, timeout)
                except (TryAgain, StoreFault) as error:
                    failure = error  # it is delivered again; the others are delivered now
                    continue
                if opened is not None:
                    letter, task = opened
                    claim = Claim(
                        owner=owner,
                        token=self._holdings.next_token(to_micros(now)),
                        claimed_at=now,
                        expires_at=now + timedelta(seconds=lease),
                        run_id=task.run_id,
                        uid=task.uid,
                        task_id=task.id,
                        queue=queue,
                    )
                    held = Held(claim, message, letter, place, task.attempt, since, message.handle)
                    self._holdings.add(held, now=since, longest=MAX_HIDDEN_S)
                    taken.append(Delivery(task, claim))
            if taken:
                return taken
            if failure is not None:
                raise failure

    async def _open(
        self,
        queue: str,
        place: SqsAddress,
        message: Message,
        max_attempts: int,
        timeout: float | None,
    ) -> tuple[TaskMessage, Task] | None:
        """The content of a message, or None if it is not to be delivered now."""
        try:
            letter = read(message.body)
            attempt = message.attempt(letter)
            task = task_of(letter, queue=queue, attempt=attempt)
        except NotOurs as why:
            is_newer = isinstance(why, Newer)
            if not is_newer or not await self._mail.pass_on(place, message, timeout=timeout):
                await self._mail.put_away(
                    queue, message, attempt=message.received, reason=str(why), timeout=timeout
                )
            return None
        if await self._keeper.settle(place, message, letter, timeout=timeout):
            return None
        if attempt > max_attempts:
            reason = f"no success in {attempt - 1} attempts"
            await self._mail.put_away(
                queue, message, attempt=attempt - 1, reason=reason, timeout=timeout
            )
            return None
        return letter, task
