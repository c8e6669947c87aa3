"""Claims on runs and tasks: take, renew, release.

`claim_runs` and `renew` also take the owner's advisory lock on the connection that they use (liveness.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from outlast.model.claim import Claim, ClaimedRun
from outlast.model.run import Run
from outlast.model.times import EPOCH, from_micros
from outlast.ports.store import readable
from outlast.stores.postgres.commit_contents import task_hash
from outlast.stores.postgres.rows import moment, quote, to_run
from outlast.stores.postgres.session import MICROSECOND, SessionStore


class PostgresClaims(SessionStore):
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
        await self._session.register_owner(owner)
        span = timedelta(seconds=ttl)
        rows = await self._session.write(
            "claim_runs",
            *self._session.time,
            owner,
            span // MICROSECOND,
            limit,
            None if workflows is None else [quote(name) for name in workflows],
            None if run_ids is None else [quote(id) for id in run_ids],
            code,
            self.database.owners_to_lock([owner]),
            timeout=timeout,
        )
        found = (readable(to_run, row) for row in rows)
        runs = sorted(filter(None, found), key=lambda run: (run.runnable_at or EPOCH, run.id))
        return [ClaimedRun(_claim_on(run, span), run) for run in runs]

    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        rows = await self._session.write(
            "renew",
            *self._session.time,
            timedelta(seconds=ttl) // MICROSECOND,
            *_pack_claims(claims),
            self.database.owners_to_lock({claim.owner for claim in claims}),
            timeout=timeout,
            urgent=True,
        )
        renewed = {
            (run_id or hash, token): moment(until) if extended else None
            for run_id, hash, token, until, extended in rows
        }
        return [_renewed(claim, renewed) for claim in claims]

    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        rows = await self._session.write("release", *_pack_claims(claims), timeout=timeout)
        released = {(run_id or hash, token) for run_id, hash, token in rows}
        self.notifier.wake()
        return [_subject(claim) in released for claim in claims]

    async def next_runnable_at(self, *, timeout: float | None = None) -> datetime | None:
        ((micros,),) = await self._session.read("next_runnable_at", timeout=timeout)
        return None if micros is None else from_micros(micros)

    async def owner_gone(self, owner: str, *, timeout: float | None = None) -> bool:
        ((gone,),) = await self._session.read("owner_gone", owner, timeout=timeout)
        return bool(gone)


def _pack_claims(claims: Sequence[Claim]) -> tuple[Any, ...]:
    """The last parameters of `renew` and `release`: claims on runs, then claims on tasks."""
    # Sorted against deadlock.
    runs = sorted((c.run_id, quote(c.uid), c.token) for c in claims if c.task_id is None)
    tasks = sorted((task_hash(c), c.token) for c in claims if c.task_id is not None)
    return (
        *(zip(*runs, strict=True) if runs else [()] * 3),
        *(zip(*tasks, strict=True) if tasks else [()] * 2),
    )


def _claim_on(run: Run, span: timedelta) -> Claim:
    assert run.owner is not None, "it was just claimed"
    assert run.claimed_until is not None, "it was just claimed"
    return Claim(
        owner=run.owner,
        token=run.token,
        claimed_at=run.claimed_until - span,
        expires_at=run.claimed_until,
        run_id=run.id,
        uid=run.uid,
    )


def _subject(claim: Claim) -> tuple[str | bytes, int]:
    return (claim.run_id if claim.task_id is None else task_hash(claim)), claim.token


def _renewed(claim: Claim, renewed: dict[tuple[str | bytes, int], datetime | None]) -> Claim | None:
    """The claim with its new lease. A claim whose row was locked keeps its lease: no process could take
    it over, and the next renewal finds it unlocked."""
    key = _subject(claim)
    if key not in renewed:
        return None
    until = renewed[key]
    if until is None or claim.expires_at is None:
        return claim
    return msgspec.structs.replace(claim, expires_at=until)
