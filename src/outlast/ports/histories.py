"""Appending and reading histories, written once over the port for every store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from outlast.errors import Busy, InvalidCommit, NotFound
from outlast.model.checks import check_after
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.event import Event
from outlast.model.ids import parent_of
from outlast.model.query import check_limit
from outlast.model.run import Run
from outlast.ports.locks import LockMethods


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
