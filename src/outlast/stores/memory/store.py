"""MemoryStore: the store port in plain dicts under one lock. Read this first: it is the
specification that the other stores are compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from outlast.model.claim import Claim, ClaimedRun
from outlast.model.commit import Commit, Outcome
from outlast.model.event import Event
from outlast.model.query import Page, RunQuery, cursor_of, parse_cursor
from outlast.model.run import Run, Status
from outlast.model.times import EPOCH
from outlast.ports.capabilities import ALL_CAPABILITIES, Capability, Durability
from outlast.stores.memory.commit import commit_all
from outlast.stores.memory.optional import MemoryOptional
from outlast.stores.memory.queue import MemoryQueue
from outlast.stores.memory.tables import Life, Tables, private


class MemoryStore(MemoryOptional):
    """Everything in this process, gone with it. Thread-safe."""

    capabilities = ALL_CAPABILITIES - {Capability.OWNER_GONE}
    durability = Durability.NOTHING

    async def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True

    def queue(self) -> MemoryQueue:
        return MemoryQueue(clock=self.clock, notifier=self.notifier, tables=self._tables)

    def sibling(self) -> MemoryStore:
        sibling = MemoryStore(clock=self.clock)
        sibling._tables, sibling.notifier = self._tables, self.notifier
        return sibling

    # -- the one write ------------------------------------------------------------------------

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        with self._locked() as tables:
            outcomes = commit_all(tables, commits, self.clock.now(), atomic=atomic)
        self.announce(commits, outcomes)
        return outcomes

    # -- reads --------------------------------------------------------------------------------

    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        with self._locked() as tables:
            life = tables.lives.get(run_id)
            return None if life is None else private(life.run)

    async def history(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Event]:
        end = None if limit is None else after + limit
        with self._locked() as tables:
            life = tables.lives.get(run_id)
            return [] if life is None else [private(event) for event in life.events[after:end]]

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        with self._locked() as tables:
            found = [life.run for life in tables.lives.values() if query.matches(life.run)]
        order = query.order
        found.sort(key=order.position, reverse=not order.ascending)
        if query.after is not None:
            last = parse_cursor(query.after, order)
            found = [run for run in found if order.is_past(order.position(run), last)]
        page = [private(run) for run in found[: query.limit]]
        return Page(page, cursor_of(page[-1], order) if len(found) > len(page) else None)

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        with self._locked() as tables:
            return Counter((life.run.workflow, life.run.status) for life in tables.lives.values())

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
        now = self.clock.now()
        claimed = []
        with self._locked() as tables:
            claimable = [
                life
                for life in tables.lives.values()
                if _wanted(life.run, now, run_ids, code)
                and (workflows is None or life.run.workflow in workflows)
                and not life.run.status.terminal
                and not _held(life.run, now)
            ]
            for life in sorted(claimable, key=_due)[:limit]:
                until = now + timedelta(seconds=ttl)
                token = tables.next_token()
                life.update(owner=owner, token=token, claimed_until=until)
                claim = Claim(
                    owner=owner,
                    token=token,
                    claimed_at=now,
                    expires_at=until,
                    run_id=life.run.id,
                    uid=life.run.uid,
                )
                claimed.append(ClaimedRun(claim, private(life.run)))
        return claimed

    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        until = self.clock.now() + timedelta(seconds=ttl)
        renewed: list[Claim | None] = []
        with self._locked() as tables:
            for claim in claims:
                if claim.task_id is None:
                    life = _owned(tables, claim)
                    if life is not None:
                        life.update(claimed_until=until)
                    kept = life is not None
                else:
                    queued = tables.alive(claim, self.clock.now())
                    if queued is not None and queued.claimed_until is not None:
                        queued.claimed_until = until
                    kept = queued is not None
                expires_at = None if claim.expires_at is None else until
                renewed.append(
                    msgspec.structs.replace(claim, expires_at=expires_at) if kept else None
                )
        return renewed

    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        released = []
        with self._locked() as tables:
            for claim in claims:
                if claim.task_id is None:
                    life = _owned(tables, claim)
                    if life is not None:
                        life.update(owner=None, claimed_until=None)
                    released.append(life is not None)
                else:
                    queued = tables.claimed(claim)
                    if queued is not None:
                        queued.owner = queued.claimed_until = None
                    released.append(queued is not None)
        self.notifier.wake()
        return released

    async def next_runnable_at(self, *, timeout: float | None = None) -> datetime | None:
        with self._locked() as tables:
            times = [
                max(run.runnable_at, run.claimed_until or run.runnable_at)
                for run in (life.run for life in tables.lives.values())
                if run.runnable_at is not None
            ]
        return min(times, default=None)


def _due(life: Life) -> tuple[datetime, str]:
    return life.run.runnable_at or EPOCH, life.run.id


def _wanted(run: Run, now: datetime, run_ids: Collection[str] | None, code: str | None) -> bool:
    if run_ids is not None:
        return run.id in run_ids
    return run.runnable_at is not None and run.runnable_at <= now and run.may_try(code)


def _held(run: Run, now: datetime) -> bool:
    return run.owner is not None and run.claimed_until is not None and run.claimed_until > now


def _owned(tables: Tables, claim: Claim) -> Life | None:
    """The life that a claim still owns: not superseded, not released, not another life."""
    life = tables.lives.get(claim.run_id)
    if life is None or life.run.uid != claim.uid or life.run.token != claim.token:
        return None
    return life if life.run.owner is not None else None
