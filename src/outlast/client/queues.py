"""Queues: how named queues stand, and their rules, from outside. Any process may ask and change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from outlast.model.queue_policy import PolicyChange, QueuePolicy, check_queue, scope_of
from outlast.model.stats import QueueStats
from outlast.ports.queue import Queue
from outlast.ports.store import Store

SOMEBODY = "client"


class Queues:
    """The named queues of a store. What is changed here is stored, holds for all workers from their
    next look on, and is audited with `by`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, queue: str) -> QueuePolicy:
        """The rules of a queue; one that has none has no limits."""
        check_queue(queue)
        async with self._queue() as found:
            policies = {policy.queue: policy for policy in await found.policies()}
        return policies.get(queue, QueuePolicy(queue=queue))

    async def all(self) -> list[QueuePolicy]:
        """The rules of all queues that have any."""
        async with self._queue() as found:
            return await found.policies()

    async def set(self, policy: QueuePolicy, *, by: str = SOMEBODY) -> None:
        """Give a queue these rules instead of those it has."""
        async with self._queue() as found:
            await found.set_policy(policy, by=by)

    async def change(self, queue: str, *, by: str = SOMEBODY, **rules: Any) -> QueuePolicy:
        """Change some rules of a queue and leave the others: ``change("mail", concurrency=5)``."""
        async with self._queue() as found:
            return await found.change_policy(
                queue, lambda policy: msgspec.structs.replace(policy, **rules), by=by
            )

    async def drop(self, queue: str, *, by: str = SOMEBODY) -> None:
        """Take the rules of a queue away."""
        async with self._queue() as found:
            await found.drop_policy(queue, by=by)

    async def pause(self, queue: str, *, by: str = SOMEBODY) -> None:
        """Let nothing of a queue begin; what is under way goes on."""
        await self.change(queue, by=by, paused=True)

    async def resume(self, queue: str, *, by: str = SOMEBODY) -> None:
        """Let a paused queue go on."""
        await self.change(queue, by=by, paused=False)

    async def changes(self, queue: str, *, limit: int = 100) -> list[PolicyChange]:
        """Who changed the rules of a queue, the last change first."""
        async with self._queue() as found:
            return await found.policy_changes(queue, limit=limit)

    async def stats(self, queue: str | None = None) -> list[QueueStats]:
        """How queues stand: one of them, or all that have tasks or rules."""
        async with self._queue() as found:
            if queue is not None:
                return [await found.stats(queue)]
            names = {scope_of(name) for name in await found.names()}
            names |= {policy.queue for policy in await found.policies()}
            return [await found.stats(name) for name in sorted(names)]

    @asynccontextmanager
    async def _queue(self) -> AsyncIterator[Queue]:
        async with self._store.queue() as queue:
            yield queue
