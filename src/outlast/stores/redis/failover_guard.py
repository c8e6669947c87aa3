"""FailoverGuard: detects that Redis has lost acknowledged commits, and quarantines the runs concerned.

Redis replicates asynchronously. A replica that takes over may lack the last commits, and a run that continues from
there would repeat steps that were recorded. The process that got the acknowledgement remembers the revision: a
run that is found at an earlier revision of the same life is quarantined. No process can claim it until an operator
has checked it and calls `RedisStore.readmit`.

A run that was moved away and back, or restored, starts its revisions again. It is recognised by its events, which
were written again under a token that is greater than all before.

Reconciling: the indexes held against the records.

Each script updates both atomically, so that they agree, except after manual writes to Redis, or
a backup was put together from parts; then a run cannot be found, or is claimed in vain.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from outlast.errors import Conflict, Fenced, StoreFault, TryAgain
from outlast.model.claim import ClaimedRun
from outlast.model.commit import Commit, Committed, Outcome
from outlast.model.run import Status
from outlast.stores.redis.concurrency_slots import repair_slots
from outlast.stores.redis.keys import CLAIM_INDEXES, of_run
from outlast.stores.redis.packing import blob, pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import token_of

_logger = logging.getLogger(__name__)

REMEMBERED = 20_000


class Acknowledged(NamedTuple):
    """What Redis has acknowledged."""

    uid: str
    revision: int
    token: int


class FailoverGuard:
    """The last acknowledged revisions of runs that this process has written recently."""

    def __init__(self) -> None:
        self._acknowledged: OrderedDict[str, Acknowledged] = OrderedDict()

    async def checked(
        self,
        server: Server,
        commits: Sequence[Commit],
        outcomes: list[Outcome],
        *,
        timeout: float | None,
    ) -> list[Outcome]:
        """Remember what was written; check what was refused."""
        for commit, outcome in zip(commits, outcomes, strict=True):
            if isinstance(outcome, Committed):
                self._remember(
                    commit.run_id, Acknowledged(outcome.uid, outcome.revision, outcome.token)
                )
            elif isinstance(outcome, (Conflict, Fenced)) and commit.run_id in self._acknowledged:
                # The commits are written and acknowledged: the next claim checks again.
                with suppress(TryAgain, StoreFault):
                    await self._check(server, commit.run_id, timeout)
        return outcomes

    async def claimed(
        self, server: Server, claimed: list[ClaimedRun], *, timeout: float | None
    ) -> list[ClaimedRun]:
        """The runs that have not gone back."""
        good = []
        for one in claimed:
            run, acknowledged = one.run, self._acknowledged.get(one.run.id)
            if (
                acknowledged is None
                or acknowledged.uid != run.uid
                or acknowledged.revision <= run.revision
            ):
                good.append(one)
            elif await self._was_restored(server, run.id, acknowledged, timeout):
                self._acknowledged[run.id] = Acknowledged(run.uid, run.revision, run.token)
                good.append(one)
            else:
                await self._quarantine(server, run.id, acknowledged, timeout)
        return good

    async def _check(self, server: Server, run_id: str, timeout: float | None) -> None:
        layout, acknowledged = server.layout, self._acknowledged[run_id]
        part = layout.part_of(run_id)
        command = (b"HMGET", layout.key(part, of_run(run_id, "state")), b"uid", b"revision")
        ((uid, revision),) = await server.commands([(part, command)], timeout=timeout, writes=False)
        if (
            uid is not None
            and uid.decode() == acknowledged.uid
            and int(revision) < acknowledged.revision
        ):
            if await self._was_restored(server, run_id, acknowledged, timeout):
                self.forget(run_id)
            else:
                await self._quarantine(server, run_id, acknowledged, timeout)

    async def _was_restored(
        self, server: Server, run_id: str, acknowledged: Acknowledged, timeout: float | None
    ) -> bool:
        """Whether its first event is newer than all acknowledged ones."""
        layout = server.layout
        part = layout.part_of(run_id)
        command = (b"ZRANGE", layout.key(part, of_run(run_id, "events")), b"0", b"0")
        (first,) = await server.commands([(part, command)], timeout=timeout, writes=False)
        return bool(first) and token_of(first[0]) > acknowledged.token

    async def _quarantine(
        self, server: Server, run_id: str, acknowledged: Acknowledged, timeout: float | None
    ) -> None:
        reason = (
            f"quarantined: Redis has gone back behind revision {acknowledged.revision}, which it had "
            "acknowledged; steps may have been done that are no longer recorded"
        )
        call = quarantine_call(
            server,
            run_id,
            {"uid": acknowledged.uid, "revision": str(acknowledged.revision), "reason": reason},
        )
        if (await server.call(call, timeout=timeout))[0] == b"done":
            _logger.error("run %r is %s", run_id, reason)

    def forget(self, run_id: str) -> None:
        """The run was deleted, or an operator has readmitted it."""
        self._acknowledged.pop(run_id, None)

    def _remember(self, run_id: str, acknowledged: Acknowledged) -> None:
        known = self._acknowledged.get(run_id)
        if (
            known is not None
            and known.uid == acknowledged.uid
            and known.revision > acknowledged.revision
        ):
            return  # answers may come in another order than they were given
        self._acknowledged[run_id] = acknowledged
        self._acknowledged.move_to_end(run_id)
        if len(self._acknowledged) > REMEMBERED:
            self._acknowledged.popitem(last=False)


def quarantine_call(server: Server, run_id: str, request: dict[str, str]) -> Call:
    """Quarantine a run, or without a reason end that."""
    names = [of_run(run_id, "state"), "token", *CLAIM_INDEXES]
    packed = pack({"id": run_id, **request})
    return Call("quarantine", server.layout.part_of(run_id), names, [packed])


PAGE = 200
WIDTH = 21  # of `sortable`
FRAMES = {
    "idx:created": 0,
    "idx:updated": 0,
    "idx:workflow": 2,
    "idx:parent": 1,
    "idx:attr": 1,
    "runnable": 1,
    "held": 1,
}
"""Sets by text: how many parts with their lengths stand before the time and the id."""
PLAIN = ("idx:ids", "idx:ended")
STATUSES = tuple(f"idx:status:{status.value}" for status in Status)


async def reconcile(server: Server, *, timeout: float | None) -> int:
    """Repair the indexes of all partitions, and release concurrency slots without a holder; returns how many entries
    were wrong or missing."""
    mended = 0
    for part in range(server.layout.partitions):
        ids: set[str] = set()
        for name in (*FRAMES, *PLAIN, *STATUSES):
            async for members in _pages(server, part, name, timeout):
                places = [(member, _id_of(name, member)) for member in members]
                ids |= {id for _, id in places}
                mended += await _mend(server, part, [], name, places, timeout)
        mended += await repair_slots(server, part, timeout=timeout)
        known = sorted(ids)
        for start in range(0, len(known), PAGE):
            mended += await _mend(server, part, known[start : start + PAGE], "", [], timeout)
    return mended


async def _pages(
    server: Server, part: int, name: str, timeout: float | None
) -> AsyncIterator[list[bytes]]:
    key, cursor = server.layout.key(part, name), b"0"
    scan = b"SSCAN" if name in STATUSES else b"ZSCAN"
    while True:
        command = (scan, key, cursor, b"COUNT", b"%d" % PAGE)
        ((cursor, found),) = await server.commands([(part, command)], timeout=timeout, writes=False)
        if found and name not in STATUSES:
            found = [one[0] for one in found] if isinstance(found[0], list) else found[::2]
        if found:
            yield found
        if int(cursor) == 0:
            return


def _id_of(name: str, member: bytes) -> str:
    if name not in FRAMES:
        return member.decode()
    start = 0
    for _ in range(FRAMES[name]):
        start += 8 + int(member[start : start + 8], 16)
    return member[start + WIDTH :].decode()


async def _mend(
    server: Server,
    part: int,
    ids: list[str],
    name: str,
    places: list[tuple[bytes, str]],
    timeout: float | None,
) -> int:
    flat = [one for member, id in places for one in (name, blob(member), id)]
    runs = {*ids, *(id for _, id in places)}
    names = [*(of_run(id, "state") for id in runs), *FRAMES, *PLAIN, *STATUSES, *CLAIM_INDEXES]
    call = Call("repair_indexes", part, names, [pack(ids), pack(flat)])
    return int((await server.call(call, timeout=timeout))[1])
