"""Runs as records, written once over the port: get, save, list."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from outlast.errors import NotFound
from outlast.model.commit import Commit, Creation
from outlast.model.query import RunQuery
from outlast.model.run import Change, Run
from outlast.ports.histories import accepted
from outlast.ports.locks import LockMethods


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
