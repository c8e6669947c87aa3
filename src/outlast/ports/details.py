"""Audit lines, activity states, snapshots, facts, timers, keys and task results, written once
over the port for every store. Each is a commit or a read of its own; none adds a guarantee."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from msgspec import Raw

from outlast.errors import Fenced, InvalidValue, NotFound
from outlast.model.activity import Activity
from outlast.model.claim import MAX_LEASE, Claim
from outlast.model.commit import Commit, Committed, Creation
from outlast.model.entry import Entry
from outlast.model.event_data import to_event
from outlast.model.fact import Fact
from outlast.model.ids import check_id, parent_of
from outlast.model.payloads import StepCompleted
from outlast.model.run import Run
from outlast.model.snapshot import Snapshot
from outlast.model.timer import Timer
from outlast.model.times import EPOCH
from outlast.ports.histories import accepted
from outlast.ports.locks import LockMethods


class DetailMethods(LockMethods):
    """What an engine of your own keeps beside its events."""

    async def record(
        self, entry: Entry, *, token: int | None = None, timeout: float | None = None
    ) -> Entry:
        """Add an audit line to a run and return it as stored: with the store's time if it had
        none."""
        if entry.timestamp == EPOCH:
            now = await self.now(timeout=timeout)
            entry = msgspec.structs.replace(entry, timestamp=now)
        await self._write(Commit(run_id=entry.run_id, token=token, entries=(entry,)), timeout)
        return entry

    async def save_activity(
        self, activity: Activity, *, token: int | None = None, timeout: float | None = None
    ) -> None:
        """Save the state of an activity; the last one saved wins."""
        await self._write(
            Commit(run_id=activity.run_id, token=token, activities=(activity,)), timeout
        )

    async def get_activity(self, activity_id: str, *, timeout: float | None = None) -> Activity:
        """The state of an activity, by its id alone; `NotFound` if there is none."""
        activity = await self.find_activity(activity_id, timeout=timeout)
        if activity is None:
            raise NotFound("activity", activity_id)
        return activity

    # -- snapshots and facts ------------------------------------------------------------------

    async def save_snapshot(
        self, snapshot: Snapshot, *, token: int | None = None, timeout: float | None = None
    ) -> None:
        """Keep a snapshot of a run in place of its last one; a run that does not exist begins."""
        await self._write(
            Commit(
                run_id=snapshot.run_id,
                token=token,
                snapshot=snapshot,
                create=Run(
                    id=snapshot.run_id,
                    parent=parent_of(snapshot.run_id),
                    definition=snapshot.definition,
                ),
                creation=Creation.UPSERT,
            ),
            timeout,
        )

    async def load_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot:
        """The last snapshot of a run; `NotFound` if there is none."""
        snapshot = await self.find_snapshot(run_id, timeout=timeout)
        if snapshot is None:
            raise NotFound("snapshot", run_id)
        return snapshot

    async def save_fact(self, data: bytes, *, timeout: float | None = None) -> str:
        """Store a value by the hash of its content, once, and return the hash."""
        fact = Fact.of(data)
        await self.put_fact(fact, timeout=timeout)
        return fact.hash

    async def load_fact(self, hash: str, *, root: str = "", timeout: float | None = None) -> bytes:
        """The value stored under a hash; `NotFound` if there is none."""
        fact = await self.find_fact(hash, root=root, timeout=timeout)
        if fact is None:
            raise NotFound("fact", hash)
        return fact.data

    # -- timers -------------------------------------------------------------------------------

    async def schedule_timer(
        self, timer: Timer, *, token: int | None = None, timeout: float | None = None
    ) -> None:
        """Keep a timer; an id that the run has already is left as it is."""
        await self._write(Commit(run_id=timer.run_id, token=token, timers=(timer,)), timeout)

    async def mark_timer_fired(
        self, run_id: str, timer_id: str, *, token: int | None = None, timeout: float | None = None
    ) -> bool:
        """Mark a timer as fired; True for the one call that did it, False ever after."""
        commit = Commit(run_id=run_id, token=token, fired=(timer_id,))
        return timer_id in (await self._write(commit, timeout)).fired

    # -- idempotency --------------------------------------------------------------------------

    async def bind_start(
        self, key: str, run_id: str, *, timeout: float | None = None
    ) -> tuple[bool, str]:
        """Bind a start's idempotency key to a run: (created, the run it is bound to)."""
        check_id(run_id)
        existing = await self.remember("start", key, run_id, run_id=run_id, timeout=timeout)
        return (True, run_id) if existing is None else (False, existing)

    async def bound_run(self, key: str, *, timeout: float | None = None) -> str | None:
        """The run that a start's idempotency key is bound to, or None."""
        return await self.recall("start", key, timeout=timeout)

    async def first_activity(
        self, activity_id: str, *, run_id: str | None = None, timeout: float | None = None
    ) -> bool:
        """True for the first call with this activity id, False ever after."""
        bound = await self.remember("activity", activity_id, "1", run_id=run_id, timeout=timeout)
        return bound is None

    # -- claims and results of tasks ----------------------------------------------------------

    async def extend(self, claim: Claim, by: timedelta, *, timeout: float | None = None) -> Claim:
        """Add to a claim's lease, but never beyond a day from now; `Fenced` if it was lost. A
        claim without lease stays as it is."""
        if by <= timedelta(0):
            raise InvalidValue(f"a claim cannot be extended by {by}: use a positive duration")
        left = MAX_LEASE
        if claim.expires_at is not None:
            left = claim.expires_at - await self.now(timeout=timeout)
        ttl = min(left + by, MAX_LEASE)
        renewed = (await self.renew([claim], max(ttl.total_seconds(), 0.001), timeout=timeout))[0]
        if renewed is None:
            raise Fenced(claim.subject, token=claim.token)
        return renewed

    async def give_back(self, claim: Claim, *, timeout: float | None = None) -> None:
        """Release one claim; `Fenced` if it was lost."""
        if not (await self.release([claim], timeout=timeout))[0]:
            raise Fenced(claim.subject, token=claim.token)

    async def save_task_result(
        self, claim: Claim, output: Raw, *, duration_ns: int = 0, timeout: float | None = None
    ) -> int:
        """Record a task's output as a completed step and remove the task, in one commit under
        the task's claim. Parallel branches append one after the other and overwrite nothing.

        For engines that claim tasks and not runs: once a run itself has been claimed, its owner
        alone may append, and a result reaches it by `send`."""
        task_id = claim.task_id or ""
        event = to_event(
            StepCompleted(duration_ns=duration_ns),
            run_id=claim.run_id,
            step_name=task_id,
            output=output,
        )
        commit = Commit(run_id=claim.run_id, uid=claim.uid, events=(event,), finishes=(claim,))
        return (await self._write(commit, timeout)).sequence

    async def _write(self, commit: Commit, timeout: float | None) -> Committed:
        outcome = await self._commit_one(commit, timeout)
        return accepted(outcome)
