"""Which messages this process holds, and by which claim.

SQS knows a message in flight by a receipt handle, which changes with every delivery; a claim of ours
has a token. Here the two meet. It is this process's own memory: another process cannot finish what
this one has taken, and SQS itself fences loosely (an old handle may still delete the message).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from outlast.errors import Fenced, NotFound
from outlast.model.claim import Claim
from outlast.queues.sqs.calls import Place
from outlast.queues.sqs.message import Letter, Message

REMEMBERED = 10_000


@dataclass(eq=False)
class Held:
    """A message in flight, and who has it. Without a `handle` it is a copy that was sent when SQS
    would not hide the first one any longer, and that has not been seen yet."""

    claim: Claim
    message: Message
    letter: Letter
    place: Place
    attempt: int
    since: float
    """When it was received, on the monotonic clock: SQS hides it for 12 hours from then."""
    handle: str | None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Holdings:
    """All that is held here, and what became of what was."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._current: dict[str, int] = {}
        self._finished: OrderedDict[int, None] = OrderedDict()
        self._last = 0

    def next_token(self, now: int) -> int:
        """A token greater than any before."""
        self._last = max(self._last + 1, now)
        return self._last

    def add(self, held: Held, *, now: float, longest: float) -> None:
        """Take note of a delivery; an older claim on the same message is superseded."""
        self._supersede(held.message.id)
        self._held[held.claim.token] = held
        self._current[held.message.id] = held.claim.token
        if len(self._held) > REMEMBERED:
            for old in [one for one in self._held.values() if now - one.since > 2 * longest]:
                self.lose(old)

    def moved(self, held: Held, message: Message | None, *, since: float) -> None:
        """The task of a claim now stands in another message, or in one not seen yet."""
        self._current.pop(held.message.id, None)
        held.handle, held.since = (None if message is None else message.handle), since
        if message is not None:
            held.message = message
            self._current[message.id] = held.claim.token

    def of(self, claim: Claim) -> Held:
        """What a claim holds: `Fenced` if that was lost, `NotFound` if it is finished."""
        held = self._held.get(claim.token)
        if held is not None and _names(held.claim) == _names(claim):
            return held
        if claim.token in self._finished:
            raise NotFound("task", claim.task_id or "")
        raise Fenced(claim.subject, token=claim.token)

    def by_token(self, token: int) -> Held | None:
        """What the claim with this token holds, if it holds anything."""
        return self._held.get(token)

    def was_finished(self, token: int) -> bool:
        """Whether the claim with this token has ended its task here."""
        return token in self._finished

    def lose(self, held: Held) -> None:
        """The claim holds nothing any more: somebody else may."""
        self._held.pop(held.claim.token, None)
        if self._current.get(held.message.id) == held.claim.token:
            del self._current[held.message.id]

    def finish(self, held: Held) -> None:
        """The task is gone."""
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
