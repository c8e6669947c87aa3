"""Claims on runs and tasks: take, renew, release."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import msgspec

from outlast.model.claim import Claim, ClaimedRun
from outlast.model.run import Run
from outlast.model.times import EPOCH
from outlast.stores.memory.tables import Life, Tables, TableStore, private


class MemoryClaims(TableStore):
    """Claims on runs, and the renewal and release of all claims."""

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
