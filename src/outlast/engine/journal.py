"""Journal: group commit. All runs' commits that are ready go to the store together, in one
transaction, while the next batch gathers.

::

    run a ─┐                                   ┌─▶ outcome a
    run b ─┼─▶ waiting ══ store.commit([…]) ══▶┼─▶ outcome b        one flush at a time;
    run c ─┘      ▲                            └─▶ outcome c        nobody waits when it is idle
    run a (next) ─┘

When a whole batch fails, nobody knows what became of its commits. Each is then settled alone: read
the run's last commit id back, and write again if it is another one. So an error of the network
costs a look, and a commit that the database cannot take harms only itself.
"""

from __future__ import annotations

import asyncio

from outlast.errors import Busy, OutlastError, TryAgain, UsageError
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.ports.store import Store

MAX_BATCH = 1000
RETRIES = 5
FIRST_PAUSE = 0.01


class Journal:
    """Gathers commits and flushes them. One per process and store."""

    def __init__(
        self, store: Store, *, max_batch: int = MAX_BATCH, timeout: float | None = None
    ) -> None:
        self._store = store
        self._max_batch = max_batch
        self._timeout = timeout
        self._waiting: dict[str, list[_Waiting]] = {}
        self._flusher: asyncio.Task[None] | None = None

    async def commit(self, commit: Commit) -> Committed:
        """Return when `commit` is durable; raise its refusal, or the error that keeps it from
        being written. Commits of one run are written in the order in which they came.

        A caller that is cancelled gets no answer, but its commit may be written all the same.
        """
        waiting = _Waiting(commit, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(commit.run_id, []).append(waiting)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_all())
        outcome = await waiting.answer
        if isinstance(outcome, Committed):
            return outcome
        raise outcome

    async def drained(self) -> None:
        """Return when nothing is waiting to be written."""
        while self._flusher is not None:
            await asyncio.wait({self._flusher})

    async def _flush_all(self) -> None:
        try:
            while self._waiting:
                await self._flush(self._next_batch())
        finally:
            self._flusher = None

    def _next_batch(self) -> list[_Waiting]:
        """The oldest commit of each run; one that replaces a tree goes alone, because it may not
        meet commits of that tree."""
        batch: list[_Waiting] = []
        for run_id in list(self._waiting):
            queue = self._waiting[run_id]
            alone = queue[0].commit.creation is Creation.REPLACE
            if alone and batch:
                continue
            batch.append(queue.pop(0))
            if not queue:
                del self._waiting[run_id]
            if alone or len(batch) == self._max_batch:
                break
        return batch

    async def _flush(self, batch: list[_Waiting]) -> None:
        outcomes: list[Outcome] | None = None
        try:
            outcomes = await self._store.commit(
                [waiting.commit for waiting in batch], timeout=self._timeout
            )
        except Exception as error:  # noqa: BLE001 - a batch must not take its neighbours down
            if len(batch) == 1 and not isinstance(error, TryAgain):
                batch[0].fail(error)
                return
        for index, waiting in enumerate(batch):
            outcome = None if outcomes is None else outcomes[index]
            if outcome is None or isinstance(outcome, Busy):
                await self._settle(waiting)
            else:
                waiting.succeed(outcome)

    async def _settle(self, waiting: _Waiting) -> None:
        """Write one commit alone until its fate is known, or give up with the last error.

        Writing it again is safe: a store answers a commit that is its run's last one with
        ``again``, and one that was overtaken with a conflict or a duplicate.
        """
        pause = FIRST_PAUSE
        for attempt in range(RETRIES):
            try:
                [outcome] = await self._store.commit([waiting.commit], timeout=self._timeout)
                if not isinstance(outcome, Busy) or attempt == RETRIES - 1:
                    waiting.succeed(outcome)
                    return
            except (TryAgain, OSError) as error:
                if attempt == RETRIES - 1:
                    waiting.fail(error)
                    return
            except (UsageError, OutlastError) as error:
                waiting.fail(error)
                return
            await self._store.clock.sleep(pause)
            pause *= 2


class _Waiting:
    """A commit and whoever waits for its outcome."""

    __slots__ = ("answer", "commit")

    def __init__(self, commit: Commit, answer: asyncio.Future[Outcome]) -> None:
        self.commit = commit
        self.answer = answer

    def succeed(self, outcome: Outcome) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)
