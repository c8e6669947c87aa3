"""Store: the whole port. Adapters subclass it.

::

    StoreMethods             what adapters implement for the engine        ports/store_methods.py
    └─ CustomEngineMethods    for engines of your own, not for outlast's    ports/custom_engine.py
       └─ Store               what is written once: histories, searches     this file
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec

from outlast.errors import Busy, InvalidCommit, NotFound, Undecodable, Unsupported
from outlast.model.commit import Commit, Committed, Creation
from outlast.model.event import Event
from outlast.model.ids import parent_of
from outlast.model.query import RunQuery, check_limit
from outlast.model.run import Run
from outlast.model.validation import check_after
from outlast.ports.custom_engine import CustomEngineMethods, accepted
from outlast.ports.queue import Queue

T = TypeVar("T")
log = logging.getLogger("outlast.stores")


class Store(CustomEngineMethods):
    """An event-sourced, fenced, crash-safe store of runs.

    Implement the abstract methods of `outlast.ports.store_methods`, declare in `capabilities` what else
    you implement, and certify the store with `outlast.testkit.conformance`.
    """

    plain_transactions: bool = False
    """Whether the connection that `transaction` gives is for plain steps, in threads. Otherwise it is
    for async steps."""

    batches_at_once: int = 1
    """How many batches of commits, of different runs, the store processes concurrently. 1 where
    batches only wait for each other, as on a file."""

    def queue(self) -> Queue:
        """The queue in the same database: its tasks are part of a commit."""
        raise Unsupported(f"{type(self).__name__} has no queue of its own: pass one to the app")

    def sibling(self) -> Store | None:
        """A second store on the same database and clock, for the event loop of another thread, which
        works while this loop is blocked. It is opened and closed by itself. None if the store cannot
        connect by itself, as on connections that the user passed in."""
        return None

    def transaction(self) -> AbstractAsyncContextManager[tuple[Any, Store]]:
        """A transaction on the store's own database, for a transactional step: a connection for the
        user's data, and this store on that connection. Committed at the end of the context, rolled
        back if that ends in an error."""
        raise Unsupported(
            f"{type(self).__name__} has no transactions for steps: use PostgreSQL, or pass "
            "`step_info().idempotency_key` on to what the step calls"
        )

    def on(self, connection: Any) -> Store:
        """This store inside a transaction of the user's: starts, signals and tasks are committed with
        the user's data, or not at all."""
        raise Unsupported(
            f"{type(self).__name__} cannot join a transaction of yours: use PostgreSQL or SQLite, in "
            "the database where your data is"
        )

    async def settle(self) -> None:
        """On a store inside a transaction: write what was deferred to the COMMIT, so that an error is
        raised here. An error of the COMMIT itself would leave the outcome unknown."""

    # -- histories ----------------------------------------------------------------------------

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


def readable(read: Callable[..., T], *args: Any) -> T | None:
    """The record as decoded by `read`, or None if it is damaged: one damaged run must not keep other
    runs from being claimed. A read of that run by its id raises."""
    try:
        return read(*args)
    except Undecodable as damage:
        log.error("a damaged run is skipped, terminate or delete it: %s", damage)
        return None
