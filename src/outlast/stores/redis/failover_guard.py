"""FailoverGuard: notices when Redis has gone back in time, and takes the run concerned away from everybody.

Redis replicates after it has answered. A replica that takes over may lack the last commits, and then a
run that goes on would do again what it was told is recorded. Whoever was told remembers it: if a run is
found at an earlier revision of the same life than this process has been told, it is quarantined. Nobody
can claim it until somebody has looked and calls `RedisStore.readmit`.

A run that was moved away and has come back, or was restored, counts its revisions anew. Its events were
all written again, under a token that is greater than any before: so it is known.
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


class Told(NamedTuple):
    """What Redis has acknowledged."""

    uid: str
    revision: int
    token: int


class FailoverGuard:
    """The last acknowledged revision of the runs that this process has written lately."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, Told] = OrderedDict()

    async def checked(
        self,
        server: Server,
        commits: Sequence[Commit],
        outcomes: list[Outcome],
        *,
        timeout: float | None,
    ) -> list[Outcome]:
        """Remember what was written; look closer at what was refused."""
        for commit, outcome in zip(commits, outcomes, strict=True):
            if isinstance(outcome, Committed):
                self._remember(commit.run_id, Told(outcome.uid, outcome.revision, outcome.token))
            elif isinstance(outcome, (Conflict, Fenced)) and commit.run_id in self._told:
                # What was written stays so, and was answered: whoever claims it next looks again.
                with suppress(TryAgain, StoreFault):
                    await self._look_at(server, commit.run_id, timeout)
        return outcomes

    async def claimed(
        self, server: Server, claimed: list[ClaimedRun], *, timeout: float | None
    ) -> list[ClaimedRun]:
        """Those of them that have not gone back."""
        good = []
        for one in claimed:
            run, told = one.run, self._told.get(one.run.id)
            if told is None or told.uid != run.uid or told.revision <= run.revision:
                good.append(one)
            elif await self._has_come(server, run.id, told, timeout):
                self._told[run.id] = Told(run.uid, run.revision, run.token)
                good.append(one)
            else:
                await self._quarantine(server, run.id, told, timeout)
        return good

    async def _look_at(self, server: Server, run_id: str, timeout: float | None) -> None:
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
        self, server: Server, run_id: str, told: Told, timeout: float | None
    ) -> bool:
        """Whether its first event was written after all that we were told."""
        layout = server.layout
        part = layout.part_of(run_id)
        command = (b"ZRANGE", layout.key(part, of_run(run_id, "events")), b"0", b"0")
        (first,) = await server.commands([(part, command)], timeout=timeout, writes=False)
        return bool(first) and token_of(first[0]) > told.token

    async def _quarantine(
        self, server: Server, run_id: str, told: Told, timeout: float | None
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
        """It was deleted, or somebody has looked at it."""
        self._told.pop(run_id, None)

    def _remember(self, run_id: str, told: Told) -> None:
        known = self._told.get(run_id)
        if known is not None and known.uid == told.uid and known.revision > told.revision:
            return  # answers may come in another order than they were given
        self._told[run_id] = told
        self._told.move_to_end(run_id)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)


def quarantine_call(server: Server, run_id: str, wish: dict[str, str]) -> Call:
    """Take a run away, or without a reason give it back."""
    names = [of_run(run_id, "state"), "token", *CLAIM_INDEXES]
    packed = pack({"id": run_id, **wish})
    return Call("quarantine", server.layout.part_of(run_id), names, [packed])
