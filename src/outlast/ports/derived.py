"""What is written once over the port, for every store: waiting for locks, histories, searches."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, TypeVar

import msgspec

from outlast.errors import Busy, InvalidCommit, NotFound, Undecodable
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.event import Event
from outlast.model.ids import parent_of
from outlast.model.query import RunQuery, check_limit
from outlast.model.run import Run
from outlast.model.validation import check_after
from outlast.ports.optional import OptionalMethods

T = TypeVar("T")
log = logging.getLogger("outlast.stores")


def readable(read: Callable[..., T], *args: Any) -> T | None:
    """The record as decoded by `read`, or None if it is damaged: one damaged run must not keep other
    runs from being claimed. A read of that run by its id raises."""
    try:
        return read(*args)
    except Undecodable as damage:
        log.error("a damaged run is skipped, terminate or delete it: %s", damage)
        return None


LOCK_PATIENCE_S = 30.0
"""How long a caller waits for a run that another transaction has locked, by default. It is bounded,
because the transaction may be the caller's own: a deadlock."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 0.5


class LockMethods(OptionalMethods):
    """Commits that wait for locked runs."""

    async def commit_when_free(
        self,
        commits: Sequence[Commit],
        *,
        patience: float = LOCK_PATIENCE_S,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """As `commit`, but waits up to `patience` seconds for runs that another transaction has
        locked; after that their outcome is `Busy`. `timeout` applies to each call of the store. A
        store that can wait inside its database overrides `_commit_waiting`."""
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
        """The outcome of one commit; with a `timeout`, waits for a locked run that long."""
        if timeout is None:
            return (await self.commit([commit]))[0]
        return (await self.commit_when_free([commit], patience=timeout, timeout=timeout))[0]

    async def _commit_waiting(
        self, commits: Sequence[Commit], wait: float, timeout: float | None
    ) -> list[Outcome]:
        """`commit`, waiting up to `wait` seconds for locks inside the database if it can."""
        return await self.commit(commits, timeout=timeout)


def locked(busy: Busy, patience: float) -> Busy:
    """`Busy` after a wait of `patience` seconds, with what to do next."""
    if patience < 1:
        return busy
    return Busy(
        f"{str(busy).rstrip('.')}. Waited {patience:g} s: if a transaction of your own holds the lock "
        "(app.on(…), a transactional step), commit it first or make this call within it; else wait "
        "longer with a greater timeout"
    )


class HistoryMethods(LockMethods):
    """A run's events as an append-only log, and runs page by page."""

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

        With `expected`, only if that is the last sequence now (`Conflict` otherwise); without, the
        store numbers them. A run that does not exist is created. No events: no change. If another
        transaction has locked the run, `Busy` is raised at once, or after `timeout` seconds.
        """
        if not events:
            return await self.last_sequence(run_id, timeout=timeout)
        commit = _appending(run_id, events, expected=expected, token=token)
        return accepted(await self._commit_one(commit, timeout)).sequence

    async def histories(
        self, run_ids: Collection[str], *, timeout: float | None = None
    ) -> dict[str, list[Event]]:
        """The whole histories of several runs, by id; empty for an unknown run. A store that can read
        them in one call overrides this."""
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
                # In an atomic batch the others get `Busy`: raise the refusal that caused it.
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
        """The events after a sequence, one by one, read in pages: memory stays bounded, and no
        transaction is open between two events. `timeout` applies to each page."""
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

    # -- runs ---------------------------------------------------------------------------------

    async def get(self, run_id: str, *, timeout: float | None = None) -> Run:
        """The record of a run; `NotFound` if there is none (`find_one` returns None)."""
        run = await self.find_one(run_id, timeout=timeout)
        if run is None:
            raise NotFound("run", run_id)
        return run

    async def find_all(
        self, query: RunQuery, *, timeout: float | None = None
    ) -> AsyncIterator[Run]:
        """All runs that match, read in pages of `query.limit` (capability FIND)."""
        while True:
            page = await self.find(query, timeout=timeout)
            for run in page.items:
                yield run
            if page.next is None:
                return
            query = msgspec.structs.replace(query, after=page.next)


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
