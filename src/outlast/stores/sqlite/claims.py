"""Claims on runs. Each search walks an index: its cost does not grow with the number of runs."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from outlast.model.claim import MAX_LEASE, Claim, ClaimedRun
from outlast.model.times import from_micros, to_micros
from outlast.ports.clock import SteadyClock
from outlast.ports.store import readable
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.liveness import Liveness
from outlast.stores.sqlite.rows import RunRow, text, to_run
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import MAX_INLINE_ROWS, SessionStore
from outlast.stores.sqlite.tasks import find_alive, find_held
from outlast.stores.sqlite.unit_of_work import LOAD_RUN, Counters

log = logging.getLogger("outlast.sqlite")

FIND_RUNNABLE_WORKFLOWS = query("find_runnable_workflows")
FIND_RUNNABLE = query("find_runnable")
FIND_EXPIRED_CLAIMS = query("find_expired_claims")
FIND_CLAIMABLE = query("find_claimable")
FIND_RUNS_BY_KEY = query("find_runs_by_key")
FIND_NEXT_TAKEOVER = query("find_next_takeover")
CLAIM_RUNS = query("claim_runs")
RENEW_RUNS = query("renew_runs")
RELEASE_RUNS = query("release_runs")
RENEW_TASK = query("renew_task")
RELEASE_TASK = query("release_task")
READ_CLOCK = query("read_clock")
WRITE_CLOCK = query("write_clock")
END_IMPOSSIBLE_CLAIMS = query("end_impossible_claims")
END_IMPOSSIBLE_TASK_CLAIMS = query("end_impossible_task_claims")


class ClaimRequest(msgspec.Struct, frozen=True):
    """Which runs to claim: see `Store.claim_runs`."""

    limit: int
    workflows: Collection[str] | None
    run_ids: Collection[str] | None
    code: str | None = None


class SqliteClaims(SessionStore):
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
        request = ClaimRequest(limit, workflows, run_ids, code)
        await self._end_leases_of_dead(owner, timeout)
        # A read first: it is cheap, and keeps pollers away from the writer's lock.
        found = await self._session.read(
            lambda db: self._find_claimable(db, request),
            timeout=timeout,
            small=run_ids is None or len(run_ids) <= MAX_INLINE_ROWS,
        )
        if not found:
            return []
        return await self._session.write(
            lambda db: claim_found(
                db, request, owner, ttl, self.clock.now(), self._session.database.liveness
            ),
            rows=2 * len(found),
            timeout=timeout,
        )

    async def _end_leases_of_dead(self, owner: str, timeout: float | None) -> None:
        """Register `owner`, and end the leases of owners that have died."""
        await self._session.register_owner(owner, self.clock, timeout=timeout)
        liveness = self._session.database.liveness
        if liveness.is_due() and await self._session.read(
            lambda db: bool(liveness.load(db)), timeout=timeout
        ):
            gone = await self._session.write(
                lambda db: liveness.end_leases(db, self.clock.now()), timeout=timeout
            )
            for name in gone:
                log.info("owner %s has died: its runs can be taken over", name)

    async def owner_gone(self, owner: str, *, timeout: float | None = None) -> bool:
        liveness = self._session.database.liveness
        return await self._session.read(lambda db: liveness.is_gone(db, owner), timeout=timeout)

    def _find_claimable(self, db: Connection, request: ClaimRequest) -> list[int]:
        self._session.check_file(db)
        if isinstance(self.clock, SteadyClock):
            # Another process on this machine may have recorded a later time.
            self.clock.heard(last_time(db))
        return find_claimable(db, request, self.clock.now())

    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        return await self._session.write(
            lambda db: renew_all(db, claims, ttl, self.clock.now()),
            rows=len(claims),
            timeout=timeout,
        )

    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        released = await self._session.write(
            lambda db: release_all(db, claims), rows=len(claims), timeout=timeout
        )
        self.notifier.wake()
        return released

    async def next_runnable_at(self, *, timeout: float | None = None) -> datetime | None:
        return await self._session.read(find_next_runnable, timeout=timeout)


def last_time(connection: Connection) -> datetime:
    """The time of the last lease, by the clock of the process that gave it."""
    return from_micros(scalar(connection, READ_CLOCK))


def end_impossible_claims(connection: Connection, now: datetime) -> None:
    """End leases that a clock far ahead has given out: no other process could take over."""
    times = {"now": to_micros(now), "longest": to_micros(now + MAX_LEASE)}
    connection.execute(END_IMPOSSIBLE_CLAIMS, times)
    connection.execute(END_IMPOSSIBLE_TASK_CLAIMS, times)
    connection.execute(WRITE_CLOCK, (to_micros(now),))


def find_claimable(connection: Connection, request: ClaimRequest, now: datetime) -> list[int]:
    """The keys of the runs to claim, those due longest first."""
    if request.run_ids is None:
        found = _runnable(connection, request, to_micros(now))
    else:
        found = []
        for id in set(request.run_ids):
            parameters = {"id": id, "now": to_micros(now)}
            for due, _, key, workflow in connection.execute(FIND_CLAIMABLE, parameters).fetchall():
                if request.workflows is None or workflow in request.workflows:
                    found.append((due or 0, id, key))
    return [key for _, _, key in sorted(found)[: request.limit]]


def _runnable(
    connection: Connection, request: ClaimRequest, now: int
) -> list[tuple[int, str, int]]:
    found = [
        (due, id, key)
        for due, id, key, workflow in (
            connection.execute(FIND_EXPIRED_CLAIMS, {"now": now, "code": request.code}).fetchall()
        )
        if request.workflows is None or workflow in request.workflows
    ]
    for workflow, due in connection.execute(FIND_RUNNABLE_WORKFLOWS).fetchall():
        if due <= now and (request.workflows is None or workflow in request.workflows):
            parameters = {
                "workflow": workflow,
                "now": now,
                "limit": request.limit,
                "code": request.code,
            }
            found += connection.execute(FIND_RUNNABLE, parameters).fetchall()
    return found


def claim_found(
    connection: Connection,
    request: ClaimRequest,
    owner: str,
    ttl: float,
    now: datetime,
    liveness: Liveness,
) -> list[ClaimedRun]:
    """Claim what `find_claimable` finds, under the writer's lock."""
    keys = liveness.without_suspects(connection, find_claimable(connection, request, now))
    if not keys:
        return []
    until = now + timedelta(seconds=ttl)
    rows = connection.execute(FIND_RUNS_BY_KEY, (text(keys),)).fetchall()
    runs = {row[0]: readable(to_run, row) for row in rows}
    counters = Counters(connection)
    claimed, updates = [], []
    for key in keys:
        token = counters.next_token()
        updates.append((owner, token, to_micros(until), key))
        found = runs[key]
        if found is None:
            continue  # damaged: claimed all the same, so that the next search skips it
        run = msgspec.structs.replace(found, owner=owner, token=token, claimed_until=until)
        claim = Claim(
            owner=owner,
            token=token,
            claimed_at=now,
            expires_at=until,
            run_id=run.id,
            uid=run.uid,
        )
        claimed.append(ClaimedRun(claim, run))
    connection.executemany(CLAIM_RUNS, updates)
    counters.save()
    connection.execute(WRITE_CLOCK, (to_micros(now),))
    return claimed


def renew_all(
    connection: Connection, claims: Sequence[Claim], ttl: float, now: datetime
) -> list[Claim | None]:
    """Set leases to `ttl` from now; None where the claim was lost."""
    until = now + timedelta(seconds=ttl)
    connection.execute(WRITE_CLOCK, (to_micros(now),))
    renewed: list[Claim | None] = []
    for claim in claims:
        if claim.task_id is None:
            run = _owned(connection, claim)
            if run is not None:
                connection.execute(RENEW_RUNS, (to_micros(until), run.key))
            kept = run is not None
        else:
            task = find_alive(connection, claim, now)
            if task is not None and task.claimed_until is not None:
                connection.execute(RENEW_TASK, (to_micros(until), task.key))
            kept = task is not None
        expires_at = None if claim.expires_at is None else until
        renewed.append(msgspec.structs.replace(claim, expires_at=expires_at) if kept else None)
    return renewed


def release_all(connection: Connection, claims: Sequence[Claim]) -> list[bool]:
    """Give claims back; False where the claim was lost."""
    released = []
    for claim in claims:
        held: Any
        if claim.task_id is None:
            held, sql = _owned(connection, claim), RELEASE_RUNS
        else:
            held, sql = find_held(connection, claim), RELEASE_TASK
        if held is not None:
            connection.execute(sql, (held.key,))
        released.append(held is not None)
    return released


def find_next_runnable(connection: Connection) -> datetime | None:
    """When the next run becomes runnable: an unowned one, or one whose lease expires."""
    times = [due for _, due in connection.execute(FIND_RUNNABLE_WORKFLOWS).fetchall()]
    takeover = scalar(connection, FIND_NEXT_TAKEOVER)
    if takeover is not None:
        times.append(takeover)
    return from_micros(min(times)) if times else None


def _owned(connection: Connection, claim: Claim) -> RunRow | None:
    """The run that a claim still owns: no newer claim, not released, the same life."""
    rows = connection.execute(LOAD_RUN, (claim.run_id,)).fetchall()
    run = RunRow(*rows[0]) if rows else None
    if run is None or run.uid != claim.uid or run.token != claim.token:
        return None
    return run if run.owner is not None else None
