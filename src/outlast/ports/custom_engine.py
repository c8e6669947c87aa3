"""CustomEngineMethods: what engines of your own use of a store, beside commits, histories and claims.

The engine of outlast uses none of this: it keeps timers, results and audit lines as events. An
engine of your own may keep them as rows instead, and claim single tasks. Adapters implement the first half
of the methods, each for a capability. The second half is written once over the port: each method is one
commit or one read, and adds no guarantee. A transfer moves these contents with the run.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
from msgspec import Raw

from outlast.errors import Fenced, InvalidValue, NotFound
from outlast.model.claim import MAX_LEASE, Claim
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.event import to_event
from outlast.model.ids import check_id, check_name, parent_of
from outlast.model.payloads import StepCompleted
from outlast.model.query import RunQuery
from outlast.model.run import Change, Run
from outlast.model.run_contents import Activity, Entry, Fact, Snapshot, Timer
from outlast.model.times import EPOCH
from outlast.model.validation import check_fact, check_key
from outlast.ports.port import (
    Capability,
    check_limit,
    check_owner,
    check_run_id,
    check_time,
    check_ttl,
    checks,
)
from outlast.ports.store_methods import StoreMethods


def _check_task_id(task_id: object) -> None:
    check_name(task_id, "task id")


def _check_activity_id(activity_id: object) -> None:
    check_name(activity_id, "activity id")


def _check_key(
    _: StoreMethods, scope: str, key: str, value: str, *, run_id: str | None = None, **__: object
) -> None:
    check_key(scope, key, value, run_id)


def accepted(outcome: Outcome) -> Committed:
    """The outcome if the commit is durable; otherwise its refusal is raised."""
    if isinstance(outcome, Committed):
        return outcome
    raise outcome


class CustomEngineMethods(StoreMethods):
    """Tasks claimed one by one, timers, audit lines, activities, facts and idempotency keys."""

    # -- for adapters: tasks ------------------------------------------------------------------

    @checks(run_id=check_run_id, task_id=_check_task_id, owner=check_owner, ttl=check_ttl)
    async def claim_task(
        self,
        run_id: str,
        task_id: str,
        owner: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Claim | None:
        """Claim one task of a run. None if it is claimed, not due, or does not exist. Without `ttl`
        the claim never expires (capability TASKS)."""
        self.refuse_capability(Capability.TASKS)

    # -- for adapters: contents of a run ------------------------------------------------------

    @checks(run_id=check_run_id)
    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        """All timers of a run, by time and id (capability TIMERS)."""
        self.refuse_capability(Capability.TIMERS)

    @checks(limit=check_limit, now=check_time("now"))
    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        """Timers that are due and have not fired, the oldest first (capability TIMERS)."""
        self.refuse_capability(Capability.TIMERS)

    @checks(run_id=check_run_id)
    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        """The audit lines of a run, by time, then in the order of recording (capability
        ENTRIES)."""
        self.refuse_capability(Capability.ENTRIES)

    @checks(run_id=check_run_id)
    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        """The activities of a run, by id (capability ACTIVITIES)."""
        self.refuse_capability(Capability.ACTIVITIES)

    @checks(activity_id=_check_activity_id)
    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        """One activity, by its id alone, or None (capability ACTIVITIES)."""
        self.refuse_capability(Capability.ACTIVITIES)

    @checks(run_id=check_run_id)
    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        """Delete the snapshot of a run; whether there was one (capability SNAPSHOTS)."""
        self.refuse_capability(Capability.SNAPSHOTS)

    @checks(limit=check_limit)
    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        """The ids of runs that have a snapshot, in order, greater than `after` (capability
        SNAPSHOTS)."""
        self.refuse_capability(Capability.SNAPSHOTS)

    @checks(fact=check_fact)
    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        """Store a fact in the free namespace; idempotent (capability FACTS). Facts of a tree of
        runs are part of a commit."""
        self.refuse_capability(Capability.FACTS)

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        """Delete a fact from the free namespace; whether it existed (capability FACTS)."""
        self.refuse_capability(Capability.FACTS)

    # -- for adapters: idempotency keys -------------------------------------------------------

    @checks(_check_key)
    async def remember(
        self,
        scope: str,
        key: str,
        value: str,
        *,
        run_id: str | None = None,
        timeout: float | None = None,
    ) -> str | None:
        """Bind `key` to `value` unless it is bound. None if this call bound it, else the value that
        it is bound to: of concurrent callers exactly one gets None. With `run_id` the key belongs
        to that run and is deleted with it (capability KEYS)."""
        self.refuse_capability(Capability.KEYS)

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        """The value that `key` is bound to, or None (capability KEYS)."""
        self.refuse_capability(Capability.KEYS)

    # -- runs as records ----------------------------------------------------------------------

    async def exists(self, run_id: str, *, timeout: float | None = None) -> bool:
        """Whether there is such a run."""
        return await self.find_one(run_id, timeout=timeout) is not None

    async def save(
        self,
        run: Run,
        *,
        revision: int | None = None,
        token: int | None = None,
        timeout: float | None = None,
    ) -> Run:
        """Write a record as it is, creating the run if needed, and return it as stored.

        With `revision` (of the record that you read), `Conflict` if it was written since; without,
        the last writer wins. A run that has ended stays as it is (`RunClosed`).
        """
        commit = Commit(
            run_id=run.id,
            create=run,
            creation=Creation.UPSERT,
            change=Change.of(run),
            revision=revision,
            token=token,
        )
        await self._write(commit, timeout)
        found = await self.find_one(run.id, timeout=timeout)
        if found is None:  # deleted since
            raise NotFound("run", run.id)
        return found

    async def run_ids(
        self, *, workflow: str | None = None, limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        """The ids of runs, newest first (capability FIND)."""
        page = await self.find(RunQuery(workflow=workflow, limit=limit), timeout=timeout)
        return [run.id for run in page.items]

    # -- audit lines and activities -----------------------------------------------------------

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
        """Save an activity; the last writer wins."""
        await self._write(
            Commit(run_id=activity.run_id, token=token, activities=(activity,)), timeout
        )

    async def get_activity(self, activity_id: str, *, timeout: float | None = None) -> Activity:
        """One activity, by its id alone; `NotFound` if there is none."""
        activity = await self.find_activity(activity_id, timeout=timeout)
        if activity is None:
            raise NotFound("activity", activity_id)
        return activity

    # -- snapshots and facts ------------------------------------------------------------------

    async def save_snapshot(
        self, snapshot: Snapshot, *, token: int | None = None, timeout: float | None = None
    ) -> None:
        """Store the snapshot of a run in place of its last one; creates the run if needed."""
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
        """Store bytes once under the hash of their content, and return the hash."""
        fact = Fact.of(data)
        await self.put_fact(fact, timeout=timeout)
        return fact.hash

    async def load_fact(self, hash: str, *, root: str = "", timeout: float | None = None) -> bytes:
        """The bytes stored under a hash; `NotFound` if there are none."""
        fact = await self.find_fact(hash, root=root, timeout=timeout)
        if fact is None:
            raise NotFound("fact", hash)
        return fact.data

    # -- timers -------------------------------------------------------------------------------

    async def schedule_timer(
        self, timer: Timer, *, token: int | None = None, timeout: float | None = None
    ) -> None:
        """Add a timer to a run; a timer with the same id is left as it is."""
        await self._write(Commit(run_id=timer.run_id, token=token, timers=(timer,)), timeout)

    async def mark_timer_fired(
        self, run_id: str, timer_id: str, *, token: int | None = None, timeout: float | None = None
    ) -> bool:
        """Mark a timer as fired; True for the one call that did it."""
        commit = Commit(run_id=run_id, token=token, fired=(timer_id,))
        return timer_id in (await self._write(commit, timeout)).fired

    # -- idempotency keys ---------------------------------------------------------------------

    async def bind_start(
        self, key: str, run_id: str, *, timeout: float | None = None
    ) -> tuple[bool, str]:
        """Bind a start's idempotency key to a run: (created, the run that it is bound to)."""
        check_id(run_id)
        existing = await self.remember("start", key, run_id, run_id=run_id, timeout=timeout)
        return (True, run_id) if existing is None else (False, existing)

    async def bound_run(self, key: str, *, timeout: float | None = None) -> str | None:
        """The run that a start's idempotency key is bound to, or None."""
        return await self.recall("start", key, timeout=timeout)

    async def first_activity(
        self, activity_id: str, *, run_id: str | None = None, timeout: float | None = None
    ) -> bool:
        """True for the first call with this activity id, False after that."""
        bound = await self.remember("activity", activity_id, "1", run_id=run_id, timeout=timeout)
        return bound is None

    # -- claims and results of tasks ----------------------------------------------------------

    async def extend(self, claim: Claim, by: timedelta, *, timeout: float | None = None) -> Claim:
        """Add to a claim's lease, up to a day from now; `Fenced` if the claim was lost. A claim
        without a lease stays as it is."""
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
        """Record a task's output as a completed step and remove the task, in one commit under the
        claim on the task. Parallel branches append one after the other.

        For engines that claim tasks and not runs: once a run is claimed, only its owner may append,
        and a result reaches it by `send`."""
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
        return accepted(await self._commit_one(commit, timeout))
