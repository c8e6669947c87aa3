"""FailoverGuard: detects that Redis has lost acknowledged commits, and quarantines the runs concerned.

Redis replicates asynchronously. A replica that takes over may lack the last commits, and a run that continues from
there would repeat steps that were recorded. The process that got the acknowledgement remembers the revision: a
run that is found at an earlier revision of the same life is quarantined. No process can claim it until an operator
has checked it and calls `RedisStore.readmit`.

A run that was moved away and back, or restored, starts its revisions again. It is recognised by its events, which
were written again under a token that is greater than all before.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from outlast.errors import Conflict, Fenced, StoreFault, TryAgain
from outlast.model.claim import ClaimedRun
from outlast.model.commit import Commit, Committed, Outcome
from outlast.stores.redis.keys import CLAIM_INDEXES, of_run
from outlast.stores.redis.packing import pack
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
        self._told: OrderedDict[str, Acknowledged] = OrderedDict()

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
            elif isinstance(outcome, (Conflict, Fenced)) and commit.run_id in self._told:
                # What was written stays so, and was answered: whoever claims it next looks again.
                with suppress(TryAgain, StoreFault):
                    await self._check(server, commit.run_id, timeout)
        return outcomes

    async def claimed(
        self, server: Server, claimed: list[ClaimedRun], *, timeout: float | None
    ) -> list[ClaimedRun]:
        """The runs that have not gone back."""
        good = []
        for one in claimed:
            run, told = one.run, self._told.get(one.run.id)
            if told is None or told.uid != run.uid or told.revision <= run.revision:
                good.append(one)
            elif await self._has_come(server, run.id, told, timeout):
                self._told[run.id] = Acknowledged(run.uid, run.revision, run.token)
                good.append(one)
            else:
                await self._quarantine(server, run.id, told, timeout)
        return good

    async def _check(self, server: Server, run_id: str, timeout: float | None) -> None:
        layout, told = server.layout, self._told[run_id]
        part = layout.part_of(run_id)
        command = (b"HMGET", layout.key(part, of_run(run_id, "state")), b"uid", b"revision")
        ((uid, revision),) = await server.commands([(part, command)], timeout=timeout, writes=False)
        if uid is not None and uid.decode() == told.uid and int(revision) < told.revision:
            if await self._has_come(server, run_id, told, timeout):
                self.forget(run_id)
            else:
                await self._quarantine(server, run_id, told, timeout)

    async def _has_come(
        self, server: Server, run_id: str, told: Acknowledged, timeout: float | None
    ) -> bool:
        """Whether its first event is newer than all acknowledged ones."""
        layout = server.layout
        part = layout.part_of(run_id)
        command = (b"ZRANGE", layout.key(part, of_run(run_id, "events")), b"0", b"0")
        (first,) = await server.commands([(part, command)], timeout=timeout, writes=False)
        return bool(first) and token_of(first[0]) > told.token

    async def _quarantine(
        self, server: Server, run_id: str, told: Acknowledged, timeout: float | None
    ) -> None:
        reason = (
            f"quarantined: Redis has gone back behind revision {told.revision}, which it had "
            "acknowledged; steps may have been done that are no longer recorded"
        )
        call = quarantine_call(
            server, run_id, {"uid": told.uid, "revision": str(told.revision), "reason": reason}
        )
        if (await server.call(call, timeout=timeout))[0] == b"done":
            _logger.error("run %r is %s", run_id, reason)

    def forget(self, run_id: str) -> None:
        """The run was deleted, or an operator has readmitted it."""
        self._told.pop(run_id, None)

    def _remember(self, run_id: str, told: Acknowledged) -> None:
        known = self._told.get(run_id)
        if known is not None and known.uid == told.uid and known.revision > told.revision:
            return  # answers may come in another order than they were given
        self._told[run_id] = told
        self._told.move_to_end(run_id)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)


def quarantine_call(server: Server, run_id: str, request: dict[str, str]) -> Call:
    """Quarantine a run, or without a reason end that."""
    names = [of_run(run_id, "state"), "token", *CLAIM_INDEXES]
    packed = pack({"id": run_id, **request})
    return Call("quarantine", server.layout.part_of(run_id), names, [packed])
