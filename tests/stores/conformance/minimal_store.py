"""MinimalStore: the required core of a store, in dicts under a lock, and nothing more."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime, timedelta

from msgspec.structs import replace

from outlast.errors import DuplicateEvent, StoreClosed
from outlast.model import Claim, Commit, Committed, Event, Outcome, Run
from outlast.model.claim import ClaimedRun
from outlast.model.commit_rules import Head, again, parks, refusal
from outlast.model.run import CHANGEABLE
from outlast.model.times import EPOCH
from outlast.ports import Clock, Store


class MinimalStore(Store):
    """Six methods. No capability is declared, so all else raises `Unsupported` by itself."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self._lock, self._closed, self._token = threading.Lock(), False, 0
        self._runs: dict[str, Run] = {}
        self._events: dict[str, list[Event]] = {}

    async def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise StoreClosed("this store is closed: open it again")
            yield

    # -- write: check the input, decide under the lock, then do it ----------------------------

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        with self._locked():
            done = [self._decided(commit) or self._written(deepcopy(commit)) for commit in commits]
        self.announce(commits, done)
        return done

    def _decided(self, commit: Commit) -> Outcome | None:
        run = self._runs.get(commit.run_id)
        head = None if run is None else _head(run)
        return again(commit, head) or refusal(commit, head) or self._duplicate(commit)

    def _duplicate(self, commit: Commit) -> DuplicateEvent | None:
        known = {event.id: event.sequence for event in self._events.get(commit.run_id, [])}
        twice = (event.id for event in commit.events if event.id in known)
        return next((DuplicateEvent(commit.run_id, id, known[id]) for id in twice), None)

    def _written(self, commit: Commit) -> Committed:
        now = self.clock.now()
        run = self._runs.get(commit.run_id) or _born(commit.create, now)
        if commit.force:
            run = self._claimed(run, None, None)
        if commit.hold is not None:
            run = self._claimed(run, commit.hold.owner, now + timedelta(seconds=commit.hold.ttl))
        history = self._events.setdefault(run.id, [])
        for number, event in enumerate(commit.events, len(history) + 1):
            at = now if event.timestamp == EPOCH else event.timestamp
            history.append(replace(event, sequence=number, token=run.token, timestamp=at))
        if commit.change is not None:
            run = replace(run, **commit.change.values())
        if run.runnable_at is not None and (run.revision == 0 or parks(commit.change)):
            run = replace(run, runnable_at=max(run.runnable_at, now))
        if run.status.terminal:
            run = replace(run, runnable_at=None, ended_at=run.ended_at or now)
        if run.status.terminal or commit.release:
            run = replace(run, owner=None, claimed_until=None)
        self._runs[run.id] = run = replace(
            run,
            sequence=len(history),
            revision=run.revision + 1,
            commit_id=commit.id,
            updated_at=now,
        )
        return Committed(
            run_id=run.id,
            uid=run.uid,
            sequence=run.sequence,
            revision=run.revision,
            token=run.token,
        )

    # -- read: what is given out is the caller's own ------------------------------------------

    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        with self._locked():
            return deepcopy(self._runs.get(run_id))

    async def history(
        self, run_id: str, *, after: int = 0, limit: int | None = None, timeout: float | None = None
    ) -> list[Event]:
        end = None if limit is None else after + limit
        with self._locked():
            return deepcopy(self._events.get(run_id, [])[after:end])

    # -- claim: the lease is for others to wait, the token fences -----------------------------

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

        def available(run: Run) -> bool:
            due = run.runnable_at is not None and run.runnable_at <= now
            wanted = due if run_ids is None else run.id in run_ids
            known = workflows is None or run.workflow in workflows
            held = run.claimed_until is not None and run.claimed_until > now
            tried = run_ids is None and not run.may_try(code)
            return wanted and known and not held and not tried and not run.status.terminal

        with self._locked():
            found = sorted(filter(available, self._runs.values()), key=_due)[:limit]
            until = now + timedelta(seconds=ttl)
            taken = [self._claimed(run, owner, until) for run in found]
            self._runs.update((run.id, run) for run in taken)
            return [ClaimedRun(_claim_on(run, now), deepcopy(run)) for run in taken]

    def _claimed(self, run: Run, owner: str | None, until: datetime | None) -> Run:
        self._token += 1
        return replace(run, token=self._token, owner=owner, claimed_until=until)

    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        until = self.clock.now() + timedelta(seconds=ttl)
        with self._locked():
            kept = [self._lease(claim, claim.owner, until) for claim in claims]
        return [
            replace(claim, expires_at=until) if ok else None
            for claim, ok in zip(claims, kept, strict=True)
        ]

    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        with self._locked():
            return [self._lease(claim, None, None) for claim in claims]

    def _lease(self, claim: Claim, owner: str | None, until: datetime | None) -> bool:
        """Set the lease of a claim, unless the claim was lost."""
        run = self._runs.get(claim.run_id)
        if run is None or run.owner is None or (run.uid, run.token) != (claim.uid, claim.token):
            return False
        self._runs[run.id] = replace(run, owner=owner, claimed_until=until)
        return True


def _born(record: Run | None, now: datetime) -> Run:
    assert record is not None, "a commit to an unknown run has been refused"
    kept = {name: getattr(record, name) for name in (*CHANGEABLE, "id", "uid", "parent")}
    return Run(**kept, created_at=now)  # what a caller says of the store's own fields is ignored


def _head(run: Run) -> Head:
    return Head(run.uid, run.status, run.sequence, run.revision, run.token, run.commit_id)


def _due(run: Run) -> tuple[datetime, str]:
    return run.runnable_at or EPOCH, run.id


def _claim_on(run: Run, now: datetime) -> Claim:
    return Claim(
        owner=run.owner or "",
        token=run.token,
        claimed_at=now,
        expires_at=run.claimed_until,
        run_id=run.id,
        uid=run.uid,
    )
