"""Memory stores with one illness each, for the machine to find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from outlast.model import Commit, Outcome, Page, Run, RunQuery
from outlast.model.claim import Claim, ClaimedRun
from outlast.model.run_contents import Receipt, Send
from outlast.stores.memory import MemoryStore


class Unfenced(MemoryStore):
    """Accepts whatever token a commit has."""

    async def commit(self, commits: Sequence[Commit], **options: Any) -> list[Outcome]:
        lives = self._tables.lives
        current = {id: life.run.token or None for id, life in lives.items()}
        return await super().commit(
            [replace(one, token=current.get(one.run_id)) for one in commits], **options
        )


class Amnesic(MemoryStore):
    """Does not recognise a commit that it has made."""

    async def commit(self, commits: Sequence[Commit], **options: Any) -> list[Outcome]:
        fresh = [replace(one, id=f"{one.id}-{self._tables.order}") for one in commits]
        self._tables.order += 1
        return await super().commit(fresh, **options)


class Deaf(MemoryStore):
    """Takes items without waking their run."""

    async def send(self, sends: Sequence[Send], **options: Any) -> Any:
        before = {id: life.run.runnable_at for id, life in self._tables.lives.items()}
        receipts = await super().send(sends, **options)
        for send, receipt in zip(sends, receipts, strict=True):
            if isinstance(receipt, Receipt):
                self._tables.lives[send.run_id].update(runnable_at=before[send.run_id])
        return receipts


class Doubling(MemoryStore):
    """Takes an item that it has taken before."""

    async def send(self, sends: Sequence[Send], **options: Any) -> Any:
        for send in sends:
            if send.run_id in self._tables.lives:
                self._tables.lives[send.run_id].item_ids.clear()
        return await super().send(sends, **options)


class Haunted(MemoryStore):
    """Deletes a run and leaves its tasks and keys."""

    async def delete(self, run_id: str, **options: Any) -> bool:
        tasks, keys = dict(self._tables.tasks), dict(self._tables.keys)
        gone = await super().delete(run_id, **options)
        self._tables.tasks, self._tables.keys = tasks, keys
        return gone


class Restarting(MemoryStore):
    """Begins to count tokens anew after a deletion."""

    async def delete(self, run_id: str, **options: Any) -> bool:
        gone = await super().delete(run_id, **options)
        if gone:
            self._tables.token = 0
        return gone


class Hasty(MemoryStore):
    """Filters after the limit."""

    async def find(self, query: RunQuery, **options: Any) -> Page[Run]:
        page = await super().find(RunQuery(limit=query.limit, after=query.after), **options)
        return Page([run for run in page.items if query.matches(run)], page.next)


class Generous(MemoryStore):
    """Renews a claim that somebody else has taken over."""

    async def renew(
        self, claims: Sequence[Claim], ttl: float, **options: Any
    ) -> list[Claim | None]:
        lives = self._tables.lives
        current = [
            replace(one, token=lives[one.run_id].run.token)
            if one.task_id is None and one.run_id in lives
            else one
            for one in claims
        ]
        return await super().renew(current, ttl, **options)


class Greedy(MemoryStore):
    """Claims one run more than was asked for."""

    async def claim_runs(self, owner: str, ttl: float, **options: Any) -> list[ClaimedRun]:
        asked = options.pop("limit", 1)
        return await super().claim_runs(owner, ttl, limit=asked + 1, **options)


SICK = [Unfenced, Amnesic, Deaf, Doubling, Haunted, Restarting, Hasty, Generous, Greedy]
