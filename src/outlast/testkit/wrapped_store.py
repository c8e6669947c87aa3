"""WrappedStore: a store around another, through which every call of the port can be seen.

The primitives of the port are passed on one by one through `around`; the conveniences (append,
save, record …) are inherited, so that they too run over the wrapped primitives. Subclass it and
override `around` to fail, to record, to measure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, Generic, TypeVar, cast

from outlast.ports.queue import Queue
from outlast.ports.store import Store

F = TypeVar("F", bound=Callable[..., Any])
Inner = TypeVar("Inner", Store, Queue)
T = TypeVar("T")


def _through(primitive: F) -> F:
    """The same method, which asks `around` and then the store or queue inside."""
    name = primitive.__name__

    @wraps(primitive, updated=())  # its __dict__ says that it is abstract
    async def passed_on(self: Any, *args: Any, **kwargs: Any) -> Any:
        async def call() -> Any:
            return await getattr(self.inner, name)(*args, **kwargs)

        return await self.around(name, call, args, kwargs)

    passed_on.__checks__ = None, []  # type: ignore[attr-defined]  # the store inside checks its arguments
    return cast("F", passed_on)


class _Wrapped(Generic[Inner]):
    inner: Inner

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        """What to do with one call of the primitive `name`. Here: just do it."""
        return await call()

    async def open(self) -> None:
        await self.inner.open()

    async def close(self) -> None:
        await self.inner.close()


class WrappedStore(_Wrapped[Store], Store):
    """A store that passes everything on to `inner`. It is opened and closed with it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(clock=inner.clock)
        self.inner = inner
        self.notifier = inner.notifier
        self.durability = inner.durability
        self.capabilities = inner.capabilities  # type: ignore[misc]
        self.plain_transactions = inner.plain_transactions
        self.batches_at_once = inner.batches_at_once

    def queue(self) -> Queue:
        return self.inner.queue()

    def transaction(self) -> AbstractAsyncContextManager[tuple[Any, Store]]:
        return self.inner.transaction()

    def inherited_files(self) -> Collection[int]:
        return self.inner.inherited_files()

    now = _through(Store.now)
    commit = _through(Store.commit)
    find_one = _through(Store.find_one)
    history = _through(Store.history)
    claim_runs = _through(Store.claim_runs)
    renew = _through(Store.renew)
    release = _through(Store.release)
    next_runnable_at = _through(Store.next_runnable_at)
    owner_gone = _through(Store.owner_gone)
    find = _through(Store.find)
    counts = _through(Store.counts)
    heartbeat = _through(Store.heartbeat)
    leave = _through(Store.leave)
    workers = _through(Store.workers)
    send = _through(Store.send)
    inbox = _through(Store.inbox)
    claim_task = _through(Store.claim_task)
    find_available_tasks = _through(Store.find_available_tasks)
    timers = _through(Store.timers)
    due_timers = _through(Store.due_timers)
    entries = _through(Store.entries)
    activities = _through(Store.activities)
    find_activity = _through(Store.find_activity)
    find_snapshot = _through(Store.find_snapshot)
    drop_snapshot = _through(Store.drop_snapshot)
    snapshot_ids = _through(Store.snapshot_ids)
    find_fact = _through(Store.find_fact)
    put_fact = _through(Store.put_fact)
    drop_fact = _through(Store.drop_fact)
    remember = _through(Store.remember)
    recall = _through(Store.recall)
    delete = _through(Store.delete)
    expire = _through(Store.expire)
    contents = _through(Store.contents)
    skip_tokens = _through(Store.skip_tokens)


class WrappedQueue(_Wrapped[Queue], Queue):
    """A queue that passes everything on to `inner`. It is opened and closed with it."""

    def __init__(self, inner: Queue) -> None:
        super().__init__(
            clock=inner.clock, notifier=inner.notifier, max_attempts=inner.max_attempts
        )
        self.inner = inner

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "max_attempts" and "inner" in self.__dict__:
            self.inner.max_attempts = value

    enqueue = _through(Queue.enqueue)
    take_many = _through(Queue.take_many)
    ack = _through(Queue.ack)
    nack = _through(Queue.nack)
    extend = _through(Queue.extend)
    len = _through(Queue.len)
    names = _through(Queue.names)
    dead = _through(Queue.dead)
    redrive = _through(Queue.redrive)
    purge = _through(Queue.purge)
    set_policy = _through(Queue.set_policy)
    change_policy = _through(Queue.change_policy)
    drop_policy = _through(Queue.drop_policy)
    declare_policy = _through(Queue.declare_policy)
    policies = _through(Queue.policies)
    policy_changes = _through(Queue.policy_changes)
    stats = _through(Queue.stats)
    next_ready_at = _through(Queue.next_ready_at)
