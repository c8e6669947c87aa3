"""Receiver: received messages as deliveries. Receiving claims the task, unless it is not due, not for this process, or dead.

SQS hides a message for at most 12 hours, so the receiver prolongs what lasts longer::

    due later than SQS can delay it   the receiver hides it until then, and sends a copy in its place when SQS does
                                      not hide it any longer
    held for  ≤ 12 h                  ChangeMessageVisibility
              longer                  a copy with the token of its holder replaces it. The holding process receives
                                      it at once; for other processes it is due in 12 hours

`Holdings` has the messages that this process holds. SQS identifies a message in flight by a receipt handle, which
changes with each delivery; outlast's claim has a token. The mapping is local: another process cannot finish a task of
this one, and SQS fences loosely (an old handle may still delete the message).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import ceil

from msgspec.structs import replace

from outlast.errors import Fenced, NotFound, StoreFault, TryAgain
from outlast.model.claim import Claim
from outlast.model.run_contents import Delivery, Task
from outlast.model.times import from_micros, to_micros
from outlast.ports.clock import Clock
from outlast.queues.sqs.client import BATCH, Calls, Rejected, SqsAddress
from outlast.queues.sqs.message import Message, Newer, NotOurs, TaskMessage, once, read, task_of
from outlast.queues.sqs.queue_urls import QueueUrls
from outlast.queues.sqs.sender import Sender, TooLong

MAX_HIDDEN_S = 43_200 - 60
"""Seconds after the reception of a message, as SQS counts; a minute is left for clock differences."""

ROUNDS = 3
LOST = {
    "InvalidParameterValue",
    "InvalidParameterValueException",
    "MessageNotInflight",
    "ReceiptHandleIsInvalid",
}
"""Codes for a message that is not hidden any more, or not by this receipt."""


class VisibilityKeeper:
    """Keeps messages hidden as long as needed."""

    def __init__(self, calls: Calls, mail: Sender, holdings: Holdings, clock: Clock) -> None:
        self._calls = calls
        self._mail = mail
        self._holdings = holdings
        self._clock = clock

    # -- receiving ----------------------------------------------------------------------------

    async def settle(
        self, place: SqsAddress, message: Message, letter: TaskMessage, *, timeout: float | None
    ) -> bool:
        """Handle a message that is not to be delivered now; whether it was one."""
        if letter.holder and await self._recognise(place, message, letter, timeout=timeout):
            return True
        if not letter.due or (letter.holder and message.received > 1):
            return False  # its holder has released it
        wait = (from_micros(letter.due) - self._clock.now()).total_seconds()
        if wait <= 0:
            return False
        if message.received == 1:
            with suppress(TooLong):
                hiding = min(wait, MAX_HIDDEN_S)
                await self._mail.hide(place, message.handle, hiding, timeout=timeout)
                return True
        # SQS does not hide it any longer: a new message can be hidden again.
        fresh = replace(letter, due=0, held_back=0.0)
        await self._mail.replace_by(place, message, message.handle, fresh, wait, timeout=timeout)
        return True

    async def _recognise(
        self, place: SqsAddress, message: Message, letter: TaskMessage, *, timeout: float | None
    ) -> bool:
        """A copy whose holder is in this process: keep it for the holder, or delete it if finished."""
        if self._holdings.was_finished(letter.holder):
            await self._mail.delete(place, message.handle, timeout=timeout)
            return True
        held = self._holdings.by_token(letter.holder)
        if held is None or held.handle is not None:
            return False
        self._holdings.moved(held, message, since=self._clock.monotonic())
        # Until its holder says for how long.
        left = (from_micros(letter.due) - self._clock.now()).total_seconds()
        await self._mail.hide(held.place, message.handle, max(left, 0), timeout=timeout)
        return True

    # -- what is held -------------------------------------------------------------------------

    @asynccontextmanager
    async def holding(self, claim: Claim) -> AsyncIterator[Held]:
        """The message of a claim, for one caller at a time; `Fenced` if SQS reports it as lost."""
        async with self._holdings.of(claim).lock:
            held = self._holdings.of(claim)
            try:
                yield held
            except Rejected as why:
                if why.code not in LOST:
                    raise
                self._holdings.lose(held)
                raise Fenced(claim.subject, token=claim.token) from why

    async def delete(self, held: Held, *, timeout: float | None) -> None:
        """Delete a held message. A copy that was not received yet is deleted on arrival."""
        if held.handle is not None:
            await self._mail.delete(held.place, held.handle, timeout=timeout)

    async def hold_back(self, held: Held, seconds: float, *, timeout: float | None) -> None:
        """Make a message visible after `seconds`."""
        if held.handle is None:
            return  # it becomes visible by itself
        if self._fits(held, seconds):
            with suppress(TooLong):
                await self._mail.hide(held.place, held.handle, seconds, timeout=timeout)
                return
        letter = replace(held.letter, before=held.attempt, due=0, held_back=0.0, holder=0)
        await self._mail.replace_by(
            held.place, held.message, held.handle, letter, seconds, timeout=timeout
        )

    async def keep(self, held: Held, seconds: float, *, timeout: float | None) -> None:
        """Hide a held message for `seconds` from now, by a copy if SQS does not hide it any longer."""
        if self._fits(held, seconds):
            if held.handle is None:
                return  # the copy is hidden for longer than that
            with suppress(TooLong):  # SQS may count from another moment
                await self._mail.hide(held.place, held.handle, seconds, timeout=timeout)
                return
        await self._copy(held, timeout=timeout)
        await self._look_for_copy(held, timeout=timeout)
        if held.handle is not None:
            await self._mail.hide(held.place, held.handle, seconds, timeout=timeout)

    async def _copy(self, held: Held, *, timeout: float | None) -> None:
        token, now = held.claim.token, self._clock.now()
        # No delay by SQS: its holder has to receive it; other processes see that it is not due.
        due = to_micros(now + timedelta(seconds=MAX_HIDDEN_S))
        letter = replace(
            held.letter, before=held.attempt, due=due, held_back=MAX_HIDDEN_S, holder=token
        )
        entry = self._mail.entry(
            held.place, letter, 0, known_as=once(held.message.id, str(self._clock.monotonic()))
        )
        await self._mail.post(held.place, [entry], timeout=timeout)
        handle = held.handle
        self._holdings.moved(held, None, since=self._clock.monotonic())
        if handle is not None:
            await self._mail.delete(held.place, handle, timeout=timeout)

    async def _look_for_copy(self, held: Held, *, timeout: float | None) -> None:
        """Receive a few messages and return those that are not the copy. That costs each of them one attempt, once in 12
        hours; otherwise the copy could not be held longer than its delay."""
        for _ in range(ROUNDS):
            found = await self._calls.receive(held.place, seconds=30, count=BATCH, timeout=timeout)
            if not found:
                return
            others = []
            for message in found:
                letter = _copy_in(message)
                if letter is None or not await self.settle(
                    held.place, message, letter, timeout=timeout
                ):
                    others.append(message)
            entries = [{"ReceiptHandle": one.handle, "VisibilityTimeout": 0} for one in others]
            await self._calls.batch(
                "change_message_visibility_batch", held.place, entries, timeout=timeout
            )
            if held.handle is not None:
                return

    def _fits(self, held: Held, seconds: float) -> bool:
        return self._clock.monotonic() + seconds <= held.since + MAX_HIDDEN_S


def _copy_in(message: Message) -> TaskMessage | None:
    """The content of a message, if it is a copy with a holder."""
    try:
        letter = read(message.body)
    except NotOurs:
        return None
    return letter if letter.holder else None


REMEMBERED = 10_000


@dataclass(eq=False)
class Held:
    """A message in flight and its claim. Without `handle` it is a copy that was sent when SQS did not hide the original
    any longer, and that was not received yet."""

    claim: Claim
    message: Message
    letter: TaskMessage
    place: SqsAddress
    attempt: int
    since: float
    """When it was received, by the monotonic clock: SQS hides it for 12 hours from then."""
    handle: str | None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Holdings:
    """All messages that this process holds, and the tokens of finished ones."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._current: dict[str, int] = {}
        self._finished: OrderedDict[int, None] = OrderedDict()
        self._last = 0

    def next_token(self, now: int) -> int:
        """A token greater than all before."""
        self._last = max(self._last + 1, now)
        return self._last

    def add(self, held: Held, *, now: float, longest: float) -> None:
        """Record a delivery; an older claim on the same message is superseded."""
        self._supersede(held.message.id)
        self._held[held.claim.token] = held
        self._current[held.message.id] = held.claim.token
        if len(self._held) > REMEMBERED:
            for old in [one for one in self._held.values() if now - one.since > 2 * longest]:
                self.lose(old)

    def moved(self, held: Held, message: Message | None, *, since: float) -> None:
        """The task of a claim is in another message now, or in one that was not received yet."""
        self._current.pop(held.message.id, None)
        held.handle, held.since = (None if message is None else message.handle), since
        if message is not None:
            held.message = message
            self._current[message.id] = held.claim.token

    def of(self, claim: Claim) -> Held:
        """The message of a claim: `Fenced` if it is lost, `NotFound` if it is finished."""
        held = self._held.get(claim.token)
        if held is not None and _names(held.claim) == _names(claim):
            return held
        if claim.token in self._finished:
            raise NotFound("task", claim.task_id or "")
        raise Fenced(claim.subject, token=claim.token)

    def by_token(self, token: int) -> Held | None:
        """The message of the claim with this token, or None."""
        return self._held.get(token)

    def was_finished(self, token: int) -> bool:
        """Whether the claim with this token has finished its task here."""
        return token in self._finished

    def lose(self, held: Held) -> None:
        """The claim is lost: another process may have the message."""
        self._held.pop(held.claim.token, None)
        if self._current.get(held.message.id) == held.claim.token:
            del self._current[held.message.id]

    def finish(self, held: Held) -> None:
        """The task is finished."""
        self.lose(held)
        self._finished[held.claim.token] = None
        if len(self._finished) > REMEMBERED:
            self._finished.popitem(last=False)

    def _supersede(self, message_id: str) -> None:
        older = self._held.get(self._current.get(message_id, 0))
        if older is not None:
            self.lose(older)


def _names(claim: Claim) -> tuple[str | None, str | None, str]:
    return claim.queue, claim.task_id, claim.run_id


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
