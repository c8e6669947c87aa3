"""PostgresStore: the store port in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.model.claim import Claim, ClaimedRun, check_ttl
from outlast.model.commit import Commit, Outcome
from outlast.model.event import Event
from outlast.model.ids import check_id, check_name
from outlast.model.query import Order, Page, RunQuery, check_limit, cursor_of, parse_cursor
from outlast.model.run import Run, Status
from outlast.model.times import EPOCH, from_micros
from outlast.model.validation import check_after
from outlast.ports.capabilities import ALL_CAPABILITIES
from outlast.ports.derived import readable
from outlast.ports.store import Store
from outlast.stores.postgres.commit import outcome_of, pack_claims, pack_commits
from outlast.stores.postgres.queue import PostgresQueue
from outlast.stores.postgres.registry import PostgresRegistry
from outlast.stores.postgres.rows import moment, quote, quote_or_none, to_events, to_run
from outlast.stores.postgres.run_details import mark_of, place_of

if TYPE_CHECKING:
    from outlast.stores.postgres.transaction import BorrowedStore

START_OF_TIME, END_OF_TIME = (-(2**63), ""), (2**63 - 1, "\U0010ffff")
EVERYTHING = 2**62
LARGEST_BATCH = 1000
"""Commits in one statement: what comes after them waits no longer than for so many."""

LONGEST_LOCK_WAIT_S = 1.0
"""One wait for a lock inside the database, which occupies a connection; then others have a turn."""
_lock_wait: ContextVar[float] = ContextVar("outlast_lock_wait", default=0.0)


class PostgresStore(PostgresRegistry):
    """Everything in one schema of a database: ``PostgresStore("postgresql://…/orders")``.

    `place` is a URL, or an asyncpg pool or connection of yours, which is used and never closed.
    Tables are made in `schema`, with `prefix` before their names, when the store is opened.
    `pool_size` connections at most are opened to a URL, `step_pool_size` for transactions of steps,
    one more for renewals and, unless `notify` is False or there is a pooler, one that listens for
    others' work. Leases and timers are judged
    by the server's clock; a `clock` that you pass judges instead, for tests.
    """

    capabilities = ALL_CAPABILITIES
    batches_at_once = 2

    async def open(self) -> None:
        await self._session.open()
        server = self._session.database.server
        assert server is not None, "an open database has looked at its server"
        self.durability = server.durability

    async def close(self) -> None:
        await self._session.close()

    def queue(self) -> PostgresQueue:
        return PostgresQueue(self._session.database, clock=self.clock, notifier=self.notifier)

    def sibling(self) -> PostgresStore | None:
        database = self.database.sibling()
        if database is None:
            return None
        sibling = PostgresStore(database, clock=self._session.clock)
        sibling._session.shift, sibling.notifier = self._session.shift, self.notifier
        return sibling

    def on(self, connection: Any) -> BorrowedStore:
        """This store inside a transaction of yours on an asyncpg connection: starts, signals and
        tasks are committed, or not, with your own data. Use it before your transaction ends."""
        from outlast.stores.postgres.transaction import BorrowedStore

        return BorrowedStore(self, connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        await self.open()
        async with self.database.transaction() as connection:
            store = self.on(connection)
            store.end_of_step = self.database.end_of_step
            yield connection, store

    def describe(self) -> dict[str, object]:
        """Version and durability of the server, whether there is a pooler, schema, warnings."""
        return self.database.describe()

    async def now(self, *, timeout: float | None = None) -> datetime:
        return await self._session.now(timeout=timeout)

    # -- the one write ------------------------------------------------------------------------

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        self.check(commits, atomic=atomic)
        if not commits:
            await self._session.make_ready()
            return []
        for commit in commits:
            if commit.hold is not None:
                await self._session.hold(commit.hold.owner)
        step = len(commits) if atomic else LARGEST_BATCH
        written: list[Outcome] | None = None
        try:
            written = [
                outcome
                for start in range(0, len(commits), step)
                for outcome in await self._commit(
                    commits[start : start + step], atomic=atomic, timeout=timeout
                )
            ]
            return written
        finally:
            # Also for a caller that was cancelled or out of time: it may be written all the same.
            self.announce(commits, written)

    async def _commit(
        self, commits: Sequence[Commit], *, atomic: bool, timeout: float | None
    ) -> list[Outcome]:
        name, wait = "commit", _lock_wait.get()
        packed = (*self._session.time, *pack_commits(commits, atomic=atomic))
        if wait > 0:
            # Of many, only what they send to: one of them that is locked delays no other.
            ids = {send.run_id for commit in commits for send in commit.sends}
            if len(commits) == 1:
                ids.add(commits[0].run_id)
            name, packed = "commit_when_free", (*packed, list(ids), round(wait * 1000))
        found = await self._session.write(name, *packed, timeout=timeout)
        found.sort(key=itemgetter(0))
        return [outcome_of(commit, row) for commit, row in zip(commits, found, strict=True)]

    async def _commit_waiting(
        self, commits: Sequence[Commit], wait: float, timeout: float | None
    ) -> list[Outcome]:
        if timeout is not None:
            wait = min(wait, timeout / 2)  # a call that is out of time leaves its outcome unknown
        token = _lock_wait.set(min(wait, LONGEST_LOCK_WAIT_S))
        try:
            return await self.commit(commits, timeout=timeout)
        finally:
            _lock_wait.reset(token)

    # -- reads --------------------------------------------------------------------------------

    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        check_id(run_id, child=True)
        row = await self._records.find(run_id, timeout)
        return None if row is None else to_run(row)

    async def history(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Event]:
        check_id(run_id, child=True)
        check_after(after)
        if limit is not None:
            check_limit(limit)
        found = await self._session.read(
            "load_history", run_id, after, EVERYTHING if limit is None else limit, timeout=timeout
        )
        return to_events(run_id, found)

    async def histories(
        self, run_ids: Collection[str], *, timeout: float | None = None
    ) -> dict[str, list[Event]]:
        for run_id in run_ids:
            check_id(run_id, child=True)
        rows = await self._session.read("load_histories", list(set(run_ids)), timeout=timeout)
        found: dict[str, list[Any]] = {run_id: [] for run_id in run_ids}
        for run_id, *row in rows:
            found[run_id].append(row)
        return {run_id: to_events(run_id, own) for run_id, own in found.items()}

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        query.check()
        order = query.order
        moment, id = START_OF_TIME if order.rises else END_OF_TIME
        if query.after is not None:
            moment, id = parse_cursor(query.after, order)
        statuses = [status.value for status in query.status] or None
        way = order.value  # newest first there are indexes that narrow the search
        if order is Order.NEWEST:
            if query.parent is not None:
                way = "children"
            elif query.attributes:
                way = "attributed"
            elif query.workflow is not None or query.status:
                way = "filed"
                statuses = statuses or [status.value for status in Status]
        rows = await self._session.read(
            "find",
            way,
            quote_or_none(query.workflow),
            statuses,
            quote_or_none(query.parent),
            [mark_of(name, value) for name, value in query.attributes.items()],
            # A forged cursor may name any number; beyond the end of time there is nothing.
            max(min(moment, 2**63 - 1), -(2**63)),
            quote(id),
            query.limit + 1,
            timeout=timeout,
        )
        found = [to_run(row) for row in rows]
        page = found[: query.limit]
        return Page(page, cursor_of(page[-1], order) if len(found) > len(page) else None)

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
        check_name(owner, "owner")
        check_ttl(ttl)
        check_limit(limit)
        await self._session.hold(owner)
        span = timedelta(seconds=ttl)
        rows = await self._session.write(
            "claim_runs",
            *self._session.time,
            owner,
            span // timedelta(microseconds=1),
            limit,
            None if workflows is None else [quote(name) for name in workflows],
            None if run_ids is None else [quote(id) for id in run_ids],
            code,
            self.database.living([owner]),
            timeout=timeout,
        )
        found = (readable(to_run, row) for row in rows)
        runs = sorted(filter(None, found), key=lambda run: (run.runnable_at or EPOCH, run.id))
        return [ClaimedRun(_claim_on(run, span), run) for run in runs]

    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        check_ttl(ttl)
        rows = await self._session.write(
            "renew",
            *self._session.time,
            timedelta(seconds=ttl) // timedelta(microseconds=1),
            *pack_claims(claims),
            self.database.living({claim.owner for claim in claims}),
            timeout=timeout,
            urgent=True,
        )
        kept = {
            (subject or place, token): moment(until) if extended else None
            for subject, place, token, until, extended in rows
        }
        return [_renewed(claim, kept) for claim in claims]

    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        rows = await self._session.write("release", *pack_claims(claims), timeout=timeout)
        released = {(subject or place, token) for subject, place, token in rows}
        self.notifier.wake()
        return [_subject(claim) in released for claim in claims]

    async def next_runnable_at(self, *, timeout: float | None = None) -> datetime | None:
        ((micros,),) = await self._session.read("next_runnable_at", timeout=timeout)
        return None if micros is None else from_micros(micros)

    async def owner_gone(self, owner: str, *, timeout: float | None = None) -> bool:
        check_name(owner, "owner")
        ((gone,),) = await self._session.read("owner_gone", owner, timeout=timeout)
        return bool(gone)


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
    return (claim.run_id if claim.task_id is None else place_of(claim)), claim.token


def _renewed(claim: Claim, kept: dict[tuple[str | bytes, int], datetime | None]) -> Claim | None:
    """The claim as it is now. Where its row was locked it is still ours, with the lease it had:
    nobody could take it over, and the next renewal finds it free."""
    key = _subject(claim)
    if key not in kept:
        return None
    until = kept[key]
    if until is None or claim.expires_at is None:
        return claim
    return msgspec.structs.replace(claim, expires_at=until)
