"""Inboxes: sending items, and reading them in pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from outlast.errors import Fenced, NotFound, RunClosed, UnknownOutcome
from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.run import Status
from outlast.model.run_contents import Item, Receipt, Send
from outlast.stores.redis.concurrency_slots import extend, to_wanted
from outlast.stores.redis.keys import CLAIM_INDEXES, TASKS, of_run
from outlast.stores.redis.outbox import relay
from outlast.stores.redis.packing import pack, pack_claim, pack_send
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.session_store import SessionStore
from outlast.stores.redis.tasks import find_lost
from outlast.stores.redis.unpacking import to_item


class RedisInbox(SessionStore):
    """Items that are sent to runs."""

    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        server = await self._session.server()
        reached = {send.run_id for send in sends}
        try:
            return await send_all(server, sends, finishes, keeps, reached, timeout=timeout)
        finally:
            self.notifier.wake(WakeupKind.RUNS, runs=reached)

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        found = await self._reads.inboxes.find((run_id, after, limit), timeout)
        return [to_item(member) for member in found or ()]


async def send_all(
    server: Server,
    sends: Sequence[Send],
    finishes: Sequence[Claim],
    keeps: Sequence[Claim],
    reached: set[str],
    *,
    timeout: float | None,
) -> list[Receipt | Refusal]:
    """Deliver items, remove the tasks that they are the results of, keep others for good. Runs that got items of
    other writers from an outbox are added to `reached`.

    Without tasks each partition gets its own items. With tasks the items of a partition go with the
    tasks there, as one step; what is for yet another one goes through the outbox of the first."""
    layout = server.layout
    by_part: dict[int, list[int]] = {}
    homes: dict[int, list[Claim]] = {}
    settled = (*finishes, *keeps)
    if not settled:
        for n, send in enumerate(sends):
            by_part.setdefault(layout.part_of(send.run_id), []).append(n)
        calls = [
            _call(server, part, [sends[n] for n in numbers], [], ())
            for part, numbers in by_part.items()
        ]
    else:
        for claim in settled:
            part = layout.part_of_task(claim.queue or "", claim.run_id)
            homes.setdefault(part, []).append(claim)
        if len(homes) > 1:
            await _check_all(server, settled, timeout)
        by_part = {part: [] for part in homes}
        for n, send in enumerate(sends):
            part = layout.part_of(send.run_id)
            by_part[part if part in homes else next(iter(homes))].append(n)
        calls = [
            _call(server, part, [sends[n] for n in by_part[part]], claims, keeps)
            for part, claims in homes.items()
        ]
    answers = await server.calls(calls, timeout=timeout)
    for n, answer in enumerate(answers):
        if not isinstance(answer, Exception) and answer[0] == b"slot":
            answers[n] = await _kept(server, calls[n], answer, timeout)
    _check(server, answers, list(homes.values()))
    receipts: list[Any] = [None] * len(sends)
    posted = set()
    for call, numbers, (_, found, has_posted) in zip(calls, by_part.values(), answers, strict=True):
        for n, answer in zip(numbers, found, strict=True):
            receipts[n] = answer
        if has_posted == b"1":
            posted.add(call.part)
    if posted:
        carried = await relay(server, posted, reached, timeout=timeout)
        for n, send in enumerate(sends):
            if receipts[n][0] == b"posted":
                receipts[n] = carried.get(send.item.id, [b"again", b"0"])
    return [_receipt(send, answer) for send, answer in zip(sends, receipts, strict=True)]


def _call(
    server: Server,
    part: int,
    sends: Sequence[Send],
    claims: Sequence[Claim],
    keeps: Sequence[Claim],
) -> Call:
    names = [
        of_run(send.run_id, what)
        for send in sends
        if server.layout.part_of(send.run_id) == part
        for what in ("state", "inbox", "items")
    ]
    names += CLAIM_INDEXES
    if claims:
        names += TASKS
        names += (of_run(claim.run_id, "tasks") for claim in claims)
    items = pack([pack_send(send, server.layout, part) for send in sends])
    settled = [pack_claim(claim) | {"keep": claim in keeps} for claim in claims]
    return Call("send_items", part, names, [items, pack(settled)])


async def _kept(server: Server, call: Call, answer: Any, timeout: float | None) -> Any:
    """What became of a call after the slots that it asks for, elsewhere, have no end any more."""
    items, claims = call.args
    settled = msgspec.msgpack.decode(claims)
    while not isinstance(answer, Exception) and answer[0] == b"slot":
        number = int(answer[1])
        (ends,) = await extend(server, [to_wanted(answer[2])], None, timeout=timeout)
        if ends is None:
            return [b"lost", answer[1]]
        settled[number - 1]["slot_ends"] = ends
        again = call._replace(args=[items, pack(settled)])
        (answer,) = await server.calls([again], timeout=timeout)
    return answer


async def _check_all(server: Server, finishes: Sequence[Claim], timeout: float | None) -> None:
    """Tasks of several partitions are not finished in one step. Looked at before, at least."""
    lost = await find_lost(server, finishes, timeout=timeout)
    if lost is not None:
        raise Fenced(lost.subject, token=lost.token)


def _check(server: Server, answers: Sequence[Any], finishes: Sequence[Sequence[Claim]]) -> None:
    failed = [answer for answer in answers if isinstance(answer, Exception)]
    if failed:
        error = server.fault(failed[0])
        if len(failed) < len(answers):
            raise UnknownOutcome(f"some items were not sent: {error}") from error
        raise error from failed[0]
    for number, answer in enumerate(answers):
        if answer[0] == b"lost":
            claim = finishes[number][int(answer[1]) - 1]
            raise Fenced(claim.subject, token=claim.token)


def _receipt(send: Send, answer: list[Any]) -> Receipt | Refusal:
    match answer[0]:
        case b"ok":
            return Receipt(int(answer[1]))
        case b"again":
            return Receipt(int(answer[1]) if len(answer) > 1 else 0, again=True)
        case b"fenced":
            return Fenced(f"run {send.run_id!r}", token=None, current=int(answer[1]))
        case b"closed":
            return RunClosed(send.run_id, Status(answer[1].decode()))
        case _:
            return NotFound("run", send.run_id)
