"""RedisStore: the store port in Redis. RedisClusterStore: the same in partitions, for Redis Cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec

from outlast.errors import TryAgain, UnknownOutcome
from outlast.model.claim import Claim, ClaimedRun
from outlast.model.commit import Commit, Committed, Outcome
from outlast.model.event import Event
from outlast.model.query import Page, RunQuery
from outlast.model.run import Run, Status
from outlast.ports.port import ALL_CAPABILITIES, Capability
from outlast.stores.redis import claims as claiming
from outlast.stores.redis import find
from outlast.stores.redis.claims import distinct_prefixes
from outlast.stores.redis.commit import commit_all, saved_activities
from outlast.stores.redis.delete import finish_all, hidden_among
from outlast.stores.redis.inbox import RedisInbox
from outlast.stores.redis.keys import framed, of_run
from outlast.stores.redis.location import Location
from outlast.stores.redis.queue import RedisQueue
from outlast.stores.redis.run_details import RedisRunDetails, forget_elsewhere
from outlast.stores.redis.tasks import RedisTasks
from outlast.stores.redis.transfer import RedisTransfer
from outlast.stores.redis.unpacking import to_event, to_run
from outlast.stores.redis.workers import RedisWorkers

PARTITIONS = 16


class RedisStore(RedisInbox, RedisTasks, RedisRunDetails, RedisWorkers, RedisTransfer):
    """A store under one prefix of a Redis: ``RedisStore("redis://localhost:6379/0")``.

    A client of yours (`redis.asyncio.Redis`, also from Sentinel) is used and never closed. `retention` (seconds,
    7 days by default, None for no limit) is how long an ended run is kept. The store uses the server's time, unless
    a `clock` is passed. A server that may evict keys is refused unless `allow_eviction`. For one event loop.
    """

    capabilities = ALL_CAPABILITIES - {Capability.OWNER_GONE}
    batches_at_once = 2

    async def open(self) -> None:
        await self._open()

    async def close(self) -> None:
        await self._close()

    def queue(self) -> RedisQueue:
        return RedisQueue(self._server, clock=self._given_clock, notifier=self.notifier)

    def sibling(self) -> RedisStore | None:
        place, layout = self._server.place, self._server.layout
        if not isinstance(place, Location):
            return None
        kind = RedisClusterStore if self._default_partitions > 1 else RedisStore
        sibling = kind(
            place,
            prefix=layout.prefix,
            partitions=layout.partitions,
            retention=self._retention,
            clock=self._given_clock,
        )
        sibling._server.copy_state(self._server)  # noqa: SLF001
        sibling.notifier = self.notifier
        return sibling

    async def now(self, *, timeout: float | None = None) -> datetime:
        server = await self._session.server()
        return await server.now(timeout=timeout)

    # -- the one write ------------------------------------------------------------------------

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        server = await self._session.server()
        if not commits:
            return []
        together = atomic and len(commits) > 1
        written: list[Outcome] | None = None
        try:
            outcomes, posted = await commit_all(server, commits, atomic=together, timeout=timeout)
            written = outcomes
        finally:
            # Also for a caller that was cancelled or out of time: it may be written all the same.
            self.announce(commits, written)
        if posted:
            outcomes = await self._relayed(commits, outcomes, posted, timeout)
        if server.layout.partitions > 1 and any(commit.activities for commit in commits):
            try:
                await forget_elsewhere(server, saved_activities(commits, outcomes), timeout=timeout)
            except TryAgain as error:  # it says that nothing was written, and the commits are
                raise UnknownOutcome(f"written, but not everywhere: {error}") from error
        return await self._watch.checked(server, commits, outcomes, timeout=timeout)

    async def _relayed(
        self,
        commits: Sequence[Commit],
        outcomes: Sequence[Outcome],
        posted: set[int],
        timeout: float | None,
    ) -> list[Outcome]:
        """Carry items to other partitions; the result tells which were not delivered."""
        answers = await self._carry(posted, timeout)
        completed: list[Outcome] = []
        for commit, outcome in zip(commits, outcomes, strict=True):
            if isinstance(outcome, Committed) and not outcome.again and commit.sends:
                lost = set(outcome.undelivered)
                lost |= {id for id, answer in answers.items() if answer[0] not in (b"ok", b"again")}
                ids = tuple(send.item.id for send in commit.sends if send.item.id in lost)
                completed.append(msgspec.structs.replace(outcome, undelivered=ids))
            else:
                completed.append(outcome)
        return completed

    # -- reads --------------------------------------------------------------------------------

    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        reply = await self._reads.records.find(run_id, timeout)
        return None if reply is None else to_run(run_id, reply)

    async def history(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Event]:
        page = () if limit is None else (b"LIMIT", b"0", b"%d" % limit)
        found = await self._reads.one(
            run_id, "events", b"ZRANGEBYSCORE", b"(%d" % after, b"+inf", *page, timeout=timeout
        )
        return [to_event(run_id, member) for member in found]

    async def histories(
        self, run_ids: Collection[str], *, timeout: float | None = None
    ) -> dict[str, list[Event]]:
        server = await self._session.server()
        layout, ids = server.layout, list(set(run_ids))
        hidden = await hidden_among(server, ids, timeout=timeout)
        commands = [
            (part, (b"ZRANGEBYSCORE", layout.key(part, of_run(id, "events")), b"-inf", b"+inf"))
            for id in ids
            for part in [layout.part_of(id)]
        ]
        found = await server.commands(commands, timeout=timeout, writes=False) if ids else []
        return {
            id: [] if id in hidden else [to_event(id, member) for member in members]
            for id, members in zip(ids, found, strict=True)
        }

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        return await find.find(await self._session.server(), query, timeout=timeout)

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        # ZLEXCOUNT of a sorted index: the cost does not depend on the number of runs.
        server = await self._session.server()
        await finish_all(server, timeout=timeout)
        files = [
            (part, workflow, status)
            for part, workflow, _ in await distinct_prefixes(server, "idx:workflow", timeout)
            for status in Status
        ]
        commands = []
        for part, workflow, status in files:
            file = framed(workflow) + framed(status.value)
            key = server.layout.key(part, "idx:workflow")
            commands.append((part, (b"ZLEXCOUNT", key, b"[" + file, b"(" + file + b"\xff")))
        found: dict[tuple[str, Status], int] = {}
        numbers = await server.commands(commands, timeout=timeout, writes=False) if files else []
        for (_, workflow, status), number in zip(files, numbers, strict=True):
            if number:
                pair = workflow.decode(), status
                found[pair] = found.get(pair, 0) + int(number)
        return found

    # -- claims -------------------------------------------------------------------------------

    async def claim_runs(
        self,
        owner: str,
        ttl: float,
        *,
        limit: int = 1,
        workflows: Collection[str] | None = None,
        run_ids: Collection[str] | None = None,
        code: str | None = None,
        timeout: float | None = None,
    ) -> list[ClaimedRun]:
        server = await self._session.server()
        request = claiming.ClaimRequest(owner, ttl, limit, workflows, run_ids, code)
        claimed = await claiming.claim_runs(server, request, timeout=timeout)
        await self._maintain(server, timeout)
        return await self._watch.claimed(server, claimed, timeout=timeout)

    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        return await claiming.renew(await self._session.server(), claims, ttl, timeout=timeout)

    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        server = await self._session.server()
        released = await claiming.renew(server, claims, None, timeout=timeout)
        self.notifier.wake()
        return [claim is not None for claim in released]

    async def next_runnable_at(self, *, timeout: float | None = None) -> datetime | None:
        return await claiming.next_runnable_at(await self._session.server(), timeout=timeout)


class RedisClusterStore(RedisStore):
    """A store in `partitions` (16 by default, fixed when the store is created), each in its own hash slot:
    ``RedisClusterStore("redis+cluster://localhost:7000")``, or with a client of yours (`redis.asyncio.RedisCluster`).
    A run and its children live in one partition. Messages to other partitions are carried right after the commit,
    exactly once. Commits of several runs are not atomic together."""

    capabilities = RedisStore.capabilities - {Capability.ATOMIC_BATCH}
    _default_partitions = PARTITIONS
