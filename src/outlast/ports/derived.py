"""What adapters share when they hand out runs.

Waiting for runs that another transaction has locked, written once over the port for every store.

Appending and reading histories, written once over the port for every store.

Runs as records, written once over the port: get, save, list.

Audit lines, activity states, snapshots, facts, timers, keys and task results, written once
over the port for every store. Each is a commit or a read of its own; none adds a guarantee.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from outlast.errors import Busy, Fenced, InvalidCommit, InvalidValue, NotFound, Undecodable
from outlast.model.claim import MAX_LEASE, Claim
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.event import Event
from outlast.model.event_data import to_event
from outlast.model.ids import check_id, parent_of
from outlast.model.payloads import StepCompleted
from outlast.model.query import RunQuery, check_limit
from outlast.model.run import Change, Run
from outlast.model.run_contents import Activity, Entry, Fact, Timer
from outlast.model.snapshot import Snapshot
from outlast.model.times import EPOCH
from outlast.model.validation import check_after
from outlast.ports.optional import OptionalMethods

T = TypeVar("T")
log = logging.getLogger("outlast.stores")


def readable(read: Callable[..., T], *args: Any) -> T | None:
    """What `read` makes of a record, or None if the record is damaged: one such run must not keep
    all the others from being claimed. Whoever asks for that run is told."""
    try:
        return read(*args)
    except Undecodable as damage:
        log.error("a run is left alone, terminate or delete it: %s", damage)
        return None


LOCK_PATIENCE_S = 30.0
"""How long a caller waits for a run that another transaction has locked, unless it says otherwise. The
transaction may be the caller's own, which then waits for itself: so there is an end."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.5


class LockMethods(OptionalMethods):
    """Commits of callers that would rather wait than be told `Busy`."""

    async def commit_when_free(
        self,
        commits: Sequence[Commit],
        *,
        patience: float = LOCK_PATIENCE_S,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """As `commit`, but a run that another transaction has locked is waited for: `Busy` is the
        outcome of a commit whose run was locked for `patience` seconds. `timeout` is for each call of
        the store. A store that can wait inside its database overrides `_commit_waiting`."""
        deadline = self.clock.monotonic() + patience
        outcomes: list[Outcome] = [Busy("not tried")] * len(commits)
        open = list(range(len(commits)))
        pause = FIRST_PAUSE_S
        while True:
            left = max(deadline - self.clock.monotonic(), 0.0)
            part = [commits[i] for i in open]
            found: Sequence[Outcome]
            try:
                found = await self._commit_waiting(part, left, timeout)
            except Busy as busy:
                found = [busy] * len(part)
            for i, outcome in zip(open, found, strict=True):
                outcomes[i] = outcome
            open = [i for i in open if isinstance(outcomes[i], Busy)]
            left = deadline - self.clock.monotonic()
            if not open or left <= 0:
                return [locked(one, patience) if isinstance(one, Busy) else one for one in outcomes]
            await self.clock.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _commit_one(self, commit: Commit, timeout: float | None) -> Outcome:
        """The outcome of one commit; a caller that gives a `timeout` waits so long for a lock."""
        if timeout is None:
            return (await self.commit([commit]))[0]
        return (await self.commit_when_free([commit], patience=timeout, timeout=timeout))[0]

    async def _commit_waiting(
        self, commits: Sequence[Commit], wait: float, timeout: float | None
    ) -> list[Outcome]:
        """`commit`; inside the database, wait up to `wait` seconds for locks if that can be done."""
        return await self.commit(commits, timeout=timeout)


def locked(busy: Busy, patience: float) -> Busy:
    """What to say to a caller that has waited in vain."""
    if patience < 1:
        return busy
    return Busy(
        f"{str(busy).rstrip('.')}. Waited {patience:g} s: if a transaction of your own holds the lock "
        "(app.on(…), a transactional step), commit it first or make this call within it; else wait "
        "longer with a greater timeout"
    )


class HistoryMethods(LockMethods):
    """A run's events as an append-only log."""

    async def append(
        self,
        run_id: str,
        events: Sequence[Event],
        *,
        expected: int | None = None,
        token: int | None = None,
        timeout: float | None = None,
    ) -> int:
        """Append events to a run, all or nothing, and return its last sequence.

        With `expected`, only if that is the last sequence now (`Conflict` otherwise); without,
        the store numbers them. A run that does not exist begins here. No events, no change. A run
        that another transaction has locked is `Busy` at once, with a `timeout` after so many seconds.
        """
        if not events:
            return await self.last_sequence(run_id, timeout=timeout)
        commit = _appending(run_id, events, expected=expected, token=token)
        return accepted(await self._commit_one(commit, timeout)).sequence

    async def histories(
        self, run_ids: Collection[str], *, timeout: float | None = None
    ) -> dict[str, list[Event]]:
        """The whole histories of several runs, by id; empty for one that is unknown. A store that can
        read them in one call overrides this."""
        return {run_id: await self.history(run_id, timeout=timeout) for run_id in run_ids}

    async def append_events(self, events: Sequence[Event], *, timeout: float | None = None) -> None:
        """Append events that carry their own sequences; each must be its run's last + 1.

        They may belong to several runs if the store can commit those together (capability
        ATOMIC_BATCH). Either all are appended or none.
        """
        commits = []
        by_run: dict[str, list[Event]] = {}
        for event in events:
            by_run.setdefault(event.run_id, []).append(event)
        for run_id, own in by_run.items():
            first = own[0].sequence
            if first < 1:
                raise InvalidCommit(
                    f"event {own[0].id!r} of run {run_id!r} has sequence {first}: sequences start "
                    "at 1; use append(run_id, events) to have the store number them"
                )
            commits.append(_appending(run_id, own, expected=first - 1, token=None))
        if commits:
            outcomes = await self.commit(commits, atomic=len(commits) > 1, timeout=timeout)
            refused = [outcome for outcome in outcomes if not isinstance(outcome, Committed)]
            if refused:
                # `Busy` is what the innocent get: the refusal that held them back comes first.
                raise min(refused, key=lambda refusal: isinstance(refusal, Busy))

    async def last_sequence(self, run_id: str, *, timeout: float | None = None) -> int:
        """The sequence of a run's last event; 0 for a run that is empty or unknown."""
        run = await self.find_one(run_id, timeout=timeout)
        return 0 if run is None else run.sequence

    async def stream(
        self,
        run_id: str,
        *,
        after: int = 0,
        page: int = 1000,
        must_exist: bool = False,
        timeout: float | None = None,
    ) -> AsyncIterator[Event]:
        """The events after a sequence, one by one, read in pages: memory stays flat and nothing
        is held open in the store between two events. `timeout` is for each page."""
        check_after(after)
        check_limit(page)
        if must_exist and await self.find_one(run_id, timeout=timeout) is None:
            raise NotFound("run", run_id)
        while True:
            events = await self.history(run_id, after=after, limit=page, timeout=timeout)
            for event in events:
                yield event
            if len(events) < page:
                return
            after = events[-1].sequence


def accepted(outcome: Outcome) -> Committed:
    """The outcome if the commit is durable; otherwise its refusal is raised."""
    if isinstance(outcome, Committed):
        return outcome
    raise outcome


def _appending(
    run_id: str, events: Sequence[Event], *, expected: int | None, token: int | None
) -> Commit:
    return Commit(
        run_id=run_id,
        expected=expected,
        token=token,
        events=tuple(events),
        create=Run(id=run_id, parent=parent_of(run_id)),
        creation=Creation.UPSERT,
    )


class RecordMethods(LockMethods):
    """Runs as typed records, for those who bring an engine of their own."""

    async def get(self, run_id: str, *, timeout: float | None = None) -> Run:
        """The record of a run; `NotFound` if there is none (`find_one` gives None)."""
        run = await self.find_one(run_id, timeout=timeout)
        if run is None:
            raise NotFound("run", run_id)
        return run

    async def exists(self, run_id: str, *, timeout: float | None = None) -> bool:
        """Whether there is such a run, however it came into being."""
        return await self.find_one(run_id, timeout=timeout) is not None

    async def save(
        self,
        run: Run,
        *,
        revision: int | None = None,
        token: int | None = None,
        timeout: float | None = None,
    ) -> Run:
        """Write a record as it is, creating the run if need be, and return it as stored.

        With `revision` (of the record you read) only if nobody has written since, else the last
        writer wins. A run that has ended stays as it is (`RunClosed`).
        """
        commit = Commit(
            run_id=run.id,
            create=run,
            creation=Creation.UPSERT,
            change=Change.of(run),
            revision=revision,
            token=token,
        )
        outcome = await self._commit_one(commit, timeout)
        accepted(outcome)
        return await self.get(run.id, timeout=timeout)

    async def run_ids(
        self, *, workflow: str | None = None, limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        """The ids of runs, newest first (capability FIND)."""
        page = await self.find(RunQuery(workflow=workflow, limit=limit), timeout=timeout)
        return [run.id for run in page.items]

    async def find_all(
        self, query: RunQuery, *, timeout: float | None = None
    ) -> AsyncIterator[Run]:
        """All runs that match, page by page, `query.limit` at a time (capability FIND)."""
        while True:
            page = await self.find(query, timeout=timeout)
            for run in page.items:
                yield run
            if page.next is None:
                return
            query = msgspec.structs.replace(query, after=page.next)


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
