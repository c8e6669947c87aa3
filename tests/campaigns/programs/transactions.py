"""Transactions of steps: an effect, and the record that the step was done, become durable together.

PostgreSQL has them, and keeps effects in a table beside its own. Any other store is given some that are
pretended: an effect counts from the moment at which the store has taken the commit that records it.
What goes wrong with a commit goes wrong with the COMMIT of such a transaction, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from outlast.errors import Busy, Unavailable, UnknownOutcome
from outlast.model.commit import Commit, Committed, Outcome
from outlast.ports.store import Store
from outlast.testing.crashable_process import Crash
from outlast.testkit.wrapped_store import WrappedStore

if TYPE_CHECKING:
    from tests.campaigns.programs.runner import Worker

T = TypeVar("T")


class Effect(NamedTuple):
    """What a transactional step has written: for whom, in which life, and for which statement."""

    run_id: str
    uid: str
    path: str


class Writer(Protocol):
    """What a transactional step writes on."""

    async def write(self, effect: Effect) -> None:
        """It is there when the transaction is committed."""
        ...


@runtime_checkable
class KeepsEffects(Protocol):
    """A store that has transactions of its own."""

    async def effects(self) -> list[Effect]:
        """All that was committed."""
        ...


class _Pending(list[Effect]):
    async def write(self, effect: Effect) -> None:
        self.append(effect)


@asynccontextmanager
async def pretended(
    store: Store, written: Callable[[Sequence[Effect]], None]
) -> AsyncIterator[tuple[Writer, Store]]:
    """A transaction on a store that has none: `written` is called with what it made durable."""
    pending = _Pending()
    yield pending, _Recording(store, lambda: written(pending))


class _Recording(WrappedStore):
    """Its commits are those of a pretended transaction."""

    def __init__(self, inner: Store, done: Callable[[], None]) -> None:
        super().__init__(inner)
        self._done = done

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        # Both or none, also if who waits for it is cancelled meanwhile.
        return await asyncio.shield(asyncio.ensure_future(self._both(name, call)))

    async def _both(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        answer = await call()
        if name == "commit":
            outcomes: list[Outcome] = answer  # type: ignore[assignment]
            if all(isinstance(one, Committed) and not one.again for one in outcomes):
                self._done()
        return answer


@asynccontextmanager
async def of_worker(
    worker: Worker, store: Store, *, is_away: Callable[[], bool], is_busy: Callable[[], bool]
) -> AsyncIterator[tuple[Any, Store]]:
    """A transaction of a process that may die before its COMMIT, after it, or not be answered."""
    worker.adopt_current_task()
    await worker.ensure_alive()
    if is_away():
        raise Unavailable("transaction: the store is away")
    async with AsyncExitStack() as ends:
        with worker.working():
            connection, inner = await ends.enter_async_context(store.transaction())
        ending = _Ending(worker, inner, is_away, is_busy)
        yield connection, ending
        with worker.working():
            await ends.aclose()
    if ending.crash is Crash.AFTER:
        worker.die()
    await worker.ensure_alive()
    if ending.crash is Crash.LOST_ANSWER:
        raise UnknownOutcome("COMMIT may or may not have happened")


class _Ending(WrappedStore):
    """The store on a transaction: with its commit, the fate of the transaction is decided."""

    def __init__(
        self,
        worker: Worker,
        inner: Store,
        is_away: Callable[[], bool],
        is_busy: Callable[[], bool],
    ) -> None:
        super().__init__(inner)
        self.clock = worker.clock
        self.crash: Crash | None = None
        self._worker = worker
        self._is_away = is_away
        self._is_busy = is_busy

    async def settle(self) -> None:
        with self._worker.working():
            await self.inner.settle()

    async def _commit_waiting(
        self, commits: Sequence[Commit], patience: float, timeout: float | None
    ) -> list[Outcome]:
        worker = self._worker
        await worker.ensure_alive()
        self.crash = worker.next_crash("commit in a transaction")
        await worker.ensure_alive()
        if self.crash is Crash.BEFORE:
            worker.die()
            await worker.ensure_alive()
        if self._is_away():
            raise Unavailable("commit in a transaction: the store is away")
        if self._is_busy():
            return [Busy("the row is locked") for _ in commits]
        with worker.working():
            return await self.inner._commit_waiting(commits, patience, timeout)
