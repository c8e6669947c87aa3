"""CommitBatcher: group commit. The commits of all runs that are ready are written together, in one transaction, while
the next batch collects.

::

    run a ─┐                                   ┌─▶ outcome a
    run b ─┼─▶ waiting ══ store.commit([…]) ══▶┼─▶ outcome b        one flush at a time;
    run c ─┘      ▲                            └─▶ outcome c        no delay when it is idle
    run a (next) ─┘

Where a server writes (`batches_at_once`) and there are many runs, they are written in two halves: while one batch is in
flight, the runs of the other continue. No two batches in flight touch the same run.

When a whole batch fails, the outcome of its commits is unknown, and each is *settled* alone: it is written again
unchanged. That is idempotent for a commit with a token, an expected sequence or events: the store answers a commit that
is its run's last with ``again``, and refuses one that was overtaken. So a network error costs a retry, and a commit that
the database refuses, or that finds its run locked, delays its own run only.

A commit is retried with backoff for as long as its caller waits: an outage, a full disk or a row lock only costs time.
The caller stops waiting when its claim is superseded, and then the store answers `Fenced`. A commit for a caller outside
the engine has a limit, its `patience`.

Commits that found a row lock are retried together if they send to the same runs: the children of one parent, which
end on several workers at the same time, would otherwise block each other.

`Observers` are called with each commit of this process once it is durable, in the order of each run. Log lines are
written there from events, and so can be metrics and traces: the engine itself counts and logs nothing of what its runs do.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Iterable

from outlast.engine.replay.error_text import shown
from outlast.errors import Busy, Closed, ReadOnlyStore, StoreFault, StoreFull, TryAgain
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.event import Event, EventType, payload_of
from outlast.model.payloads import (
    StepFailedEvent,
    StepStarted,
    WorkflowCancelled,
    WorkflowFailed,
    chain_text,
)
from outlast.ports.clock import Backoff
from outlast.ports.store import Store

Observer = Callable[[Commit, Committed], None]
"""Called with a commit that has become durable, and the store's answer. It must not block."""

log = logging.getLogger("outlast.runs")

_LEVELS: dict[str, int] = {
    EventType.WORKFLOW_STARTED: logging.INFO,
    EventType.WORKFLOW_COMPLETED: logging.INFO,
    EventType.WORKFLOW_CANCELLED: logging.INFO,
    EventType.WORKFLOW_FAILED: logging.WARNING,
    EventType.STEP_FAILED: logging.INFO,
}


class Observers:
    """Calls several observers. An error of one is logged: the commit is durable anyway."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = (log_events, *observers)

    def __call__(self, commit: Commit, committed: Committed) -> None:
        for observer in self._observers:
            try:
                observer(commit, committed)
            except Exception:
                log.exception("observer %r failed at a commit of run %s", observer, commit.run_id)


class UnknownChildren:
    """Warns once for each workflow of children whose code this process does not have: they wait for a worker that has
    it, and so do their parents."""

    def __init__(self, known: Container[str]) -> None:
        self._known = known
        self._reported: set[str] = set()

    def __call__(self, commit: Commit, _: Committed) -> None:
        for start in commit.starts:
            name = start.run.workflow
            if name not in self._known and name not in self._reported:
                self._reported.add(name)
                log.warning(
                    "run %s has a child of workflow %r, which is not registered here: it waits "
                    "until a worker has it. If this is the only one: App(…, workflows=[…, %s])",
                    shown(commit.run_id), name, name,
                )  # fmt: skip


def log_events(commit: Commit, _: Committed) -> None:
    """Log the events of a commit to ``outlast.runs``: a failed run at WARNING, starts and ends of runs and failed
    attempts of steps at INFO, everything else at DEBUG."""
    lowest = log.getEffectiveLevel()
    for event in commit.events:
        level = _LEVELS.get(event.type, logging.DEBUG)
        if level >= lowest:
            extra = {"run": commit.run_id, "step": event.step_name, "event": event.type}
            log.log(level, "%s", _line(event), extra=extra)


def _line(event: Event) -> str:
    what = f"{event.type} {event.step_name}".strip()
    text = f"{what} [run={shown(event.run_id)}]"
    match payload_of(event):
        case StepStarted(attempt=attempt):
            return f"{text} attempt {attempt}"
        case StepFailedEvent(attempt=attempt, error=error, will_retry=will_retry) as failed:
            end = "will be tried again" if will_retry else "given up"
            kind = f"{failed.error_type}: " if failed.error_type else ""
            at = f" at {failed.frames[-1]}" if failed.frames else ""
            return f"{text} attempt {attempt}, {end}: {kind}{error}{at}"
        case WorkflowFailed(error=reason, details=details):
            return f"{text}: {reason}" + (f"\n{chain_text(details)}" if details else "")
        case WorkflowCancelled(reason=reason):
            return f"{text}: {reason}"
    return text


MAX_BATCH = 1000
MANY = 32
"""This many commits, waiting or in flight, are worth a second batch: each batch costs a sync."""

ATTEMPTS = 5
"""Tries, after errors, of a commit for a caller outside the engine: a web request must not hang in an outage."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0
ROW_SECONDS = 0.001
"""The additional timeout for each row: ten times what a store needs."""

SETTLE_AT_ONCE = 8
"""How many commits are settled at the same time in a store that has just failed."""

LOCK_WAIT_S = 0.25
LOCK_WAITS_AT_ONCE = 2
"""Each wait for a lock in the database occupies a connection: few and short ones."""

AGAIN = (TryAgain, OSError, StoreFull, ReadOnlyStore)
"""Errors after which the same commit may be written again: a full disk is freed, a standby promoted."""


class CommitBatcher:
    """Collects commits and writes them. One per process and store."""

    def __init__(
        self,
        store: Store,
        *,
        max_batch: int = MAX_BATCH,
        timeout: float | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._max_batch = max_batch
        self._timeout = timeout
        self._observer = observer
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._flushers: set[asyncio.Task[None]] = set()
        self._flying: set[str] = set()  # runs that batches on their way touch
        self._flies_alone = False
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(SETTLE_AT_ONCE)
        self._room_to_wait = asyncio.Semaphore(LOCK_WAITS_AT_ONCE)

    async def commit(self, commit: Commit, *, patience: float | None = None) -> Committed:
        """Return when `commit` is durable; raise its refusal, or the error that keeps it from
        being written. Commits of one run are written in the order in which they came.

        With `patience`, raise `Busy` if the run is locked for longer, and other errors after
        `ATTEMPTS`. A caller that is cancelled gets no answer, but its commit may be written.
        """
        outcome = await self.submit(commit, patience=patience)
        if isinstance(outcome, Committed):
            return outcome
        raise outcome

    def submit(self, commit: Commit, *, patience: float | None = None) -> asyncio.Future[Outcome]:
        """As `commit`, without waiting: a future with the outcome, also if it is a refusal."""
        until = None if patience is None else self._store.clock.monotonic() + patience
        waiting = _Waiting(commit, asyncio.Future(), until)
        self._waiting.setdefault(commit.run_id, deque()).append(waiting)
        self._wake()
        return waiting.answer

    async def drained(self) -> None:
        """Return when no commit waits to be written."""
        while tasks := {*self._settling.values(), *self._flushers}:
            await asyncio.wait(tasks)

    async def close(self, patience: float) -> None:
        """Return when no commit waits to be written; after `patience` seconds write no more: a store that does not
        answer would keep a stopping process for minutes."""
        try:
            async with asyncio.timeout(patience):
                await self.drained()
        except TimeoutError:
            for queue in self._waiting.values():
                for waiting in queue:
                    waiting.fail(Closed("closed before it could be written: nothing was"))
            self._waiting.clear()
            for task in (*self._settling.values(), *self._flushers):
                task.cancel()
            await self.drained()

    def _wake(self) -> None:
        if not self._flushers or (
            len(self._flushers) < self._store.batches_at_once and self._has_many
        ):
            self._flushers.add(asyncio.create_task(self._flush_all()))

    @property
    def _has_many(self) -> bool:
        return len(self._waiting) + len(self._flying) >= MANY

    async def _flush_all(self) -> None:
        try:
            while batch := self._next_batch():
                touched = {run_id for waiting in batch for run_id in _touched_by(waiting.commit)}
                self._flying |= touched
                self._flies_alone = _replaces(batch[0].commit)
                self._wake()
                try:
                    await self._flush(batch)
                finally:
                    self._flying -= touched
                    self._flies_alone = False
        except BaseException:
            # The program is ending: what is waiting will not be written, and no caller may wait for it.
            for queue in self._waiting.values():
                for waiting in queue:
                    waiting.answer.cancel()
            self._waiting.clear()
            raise
        finally:
            self._flushers -= {asyncio.current_task()}

    def _next_batch(self) -> list[_Waiting]:
        """The oldest commit of each run that is not being settled; of many, a part. A commit that replaces a tree goes
        alone, because it must not meet commits of that tree. What may not be in flight beside the current batches
        is taken when they have returned."""
        batch: list[_Waiting] = []
        most = self._max_batch
        if self._flying and (self._flies_alone or not self._has_many):
            return batch
        if self._store.batches_at_once > 1 and self._has_many:
            most = min(
                most, -(-(len(self._waiting) + len(self._flying)) // self._store.batches_at_once)
            )
        for run_id in list(self._waiting):
            queue = self._waiting[run_id]
            commit = queue[0].commit
            alone = _replaces(commit)
            if run_id in self._settling or (alone and batch):
                continue
            if alone and self._flying:
                break  # nothing more is sent until all batches have returned
            if self._flying and not self._flying.isdisjoint(_touched_by(commit)):
                continue
            batch.append(queue.popleft())
            if not queue:
                del self._waiting[run_id]
            if alone or len(batch) == most:
                break
        return batch

    async def _flush(self, batch: list[_Waiting]) -> None:
        outcomes: list[Outcome] | list[None] = [None] * len(batch)
        try:
            outcomes = await self._write(batch)
        except Exception as error:  # noqa: BLE001 - the callers get it
            if len(batch) == 1 and not isinstance(error, AGAIN):
                batch[0].fail(error)
                return
        except BaseException:
            for waiting in batch:
                waiting.answer.cancel()
            raise
        locked: dict[frozenset[str], list[_Waiting]] = {}
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Busy):
                commit = waiting.commit
                targets = frozenset(send.run_id for send in commit.sends) or {commit.run_id}
                locked.setdefault(frozenset(targets), []).append(waiting)
            elif outcome is None:
                self._settle_soon([waiting])
            else:
                waiting.succeed(outcome)
        for group in locked.values():
            self._settle_soon(group, locked=True)

    async def _write(self, batch: list[_Waiting], *, wait: float = 0.0) -> list[Outcome]:
        commits = [waiting.commit for waiting in batch]
        timeout = self._timeout_of(commits)
        if wait:
            outcomes = await self._store.commit_when_free(commits, patience=wait, timeout=timeout)
        else:
            outcomes = await self._store.commit(commits, timeout=timeout)
        if len(outcomes) != len(batch):
            raise StoreFault(f"{len(batch)} commits were answered with {len(outcomes)} outcomes")
        if self._observer is not None:
            for commit, outcome in zip(commits, outcomes, strict=True):
                if isinstance(outcome, Committed):
                    self._observer(commit, outcome)
        return outcomes

    def _timeout_of(self, commits: list[Commit]) -> float | None:
        """The timeout of a call: longer for a large batch, which would time out at every try."""
        if self._timeout is None:
            return None
        rows = 0
        for one in commits:
            rows += len(one.events)
            if one.starts or one.sends:
                rows += len(one.starts) + len(one.sends)
        return self._timeout + ROW_SECONDS * rows

    # -- settling -----------------------------------------------------------------------------

    def _settle_soon(self, group: list[_Waiting], *, locked: bool = False) -> None:
        settling = asyncio.create_task(self._settle(group, locked=locked))
        for waiting in group:
            self._settling[waiting.commit.run_id] = settling

    async def _settle(self, group: list[_Waiting], *, locked: bool) -> None:
        """Write commits until the outcome of each is known or its caller waits no longer: together if another
        transaction has locked their rows, one by one if writing them failed."""
        backoff, left = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S), group
        try:
            while left := [waiting for waiting in left if not waiting.answer.done()]:
                parts = [left] if locked else [[waiting] for waiting in left]
                left, failed = [], False
                for part in parts:
                    again, error = await self._try_again(part, locked=locked)
                    left += again
                    failed = failed or error
                locked = not failed
                if left:
                    await backoff.wait(self._store.clock)
        finally:
            for waiting in group:
                waiting.answer.cancel()  # without effect unless this task was cancelled
                del self._settling[waiting.commit.run_id]
            self._wake()

    async def _try_again(
        self, part: list[_Waiting], *, locked: bool
    ) -> tuple[list[_Waiting], bool]:
        """Write commits once more; returns those that have yet to be written, and whether writing failed."""
        room, wait = (self._room_to_wait, LOCK_WAIT_S) if locked else (self._room, 0.0)
        try:
            async with room:
                outcomes = await self._write(part, wait=wait)
        except Exception as error:  # noqa: BLE001 - the callers get it
            if len(part) > 1 or (isinstance(error, AGAIN) and self._may_retry(part[0], error)):
                return part, True
            part[0].fail(error)
            return [], True
        left = []
        for waiting, outcome in zip(part, outcomes, strict=True):
            if isinstance(outcome, Busy) and self._may_retry(waiting, outcome):
                left.append(waiting)
            else:
                waiting.succeed(outcome)
        return left, False

    def _may_retry(self, waiting: _Waiting, why: Exception) -> bool:
        if waiting.until is None:
            return True
        if isinstance(why, Busy):
            return self._store.clock.monotonic() < waiting.until
        waiting.errors += 1
        return waiting.errors < ATTEMPTS


def _replaces(commit: Commit) -> bool:
    return commit.creation is Creation.REPLACE


def _touched_by(commit: Commit) -> tuple[str, ...]:
    """The runs that the store locks for a commit."""
    if not commit.sends:
        return (commit.run_id,)
    return (commit.run_id, *(send.run_id for send in commit.sends))


class _Waiting:
    """A commit, its caller's future, and until when the caller waits for a lock; None is without limit."""

    __slots__ = ("answer", "commit", "errors", "until")

    def __init__(
        self, commit: Commit, answer: asyncio.Future[Outcome], until: float | None
    ) -> None:
        self.commit = commit
        self.answer = answer
        self.until = until
        self.errors = 0

    def succeed(self, outcome: Outcome) -> None:
        """Answer with an outcome."""
        if not self.answer.done():
            self.answer.set_result(outcome)

    def fail(self, error: Exception) -> None:
        """Answer with an error: the outcome is unknown, or the commit cannot be written."""
        if not self.answer.done():
            self.answer.set_exception(error)
