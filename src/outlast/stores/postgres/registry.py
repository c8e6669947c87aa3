"""What concerns a store as a whole: how many runs there are, which workers live, and what a move to
another store has to know."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from outlast.model.claim import check_ttl
from outlast.model.ids import check_id, check_name
from outlast.model.json import from_json, to_json
from outlast.model.run import Status
from outlast.model.run_contents import BoundKey, RunContents
from outlast.model.times import from_micros, to_micros
from outlast.model.validation import check_after, check_worker
from outlast.model.worker import REMEMBERED, Worker
from outlast.stores.postgres.optional import PostgresOptional
from outlast.stores.postgres.rows import STATUS, Row, to_dead_task, to_holding, to_task, unquote


class PostgresRegistry(PostgresOptional):
    """Counts, workers and moves."""

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        found = await self._session.read("count_runs", timeout=timeout)
        return {(unquote(workflow), STATUS[status]): number for workflow, status, number in found}

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        check_worker(worker)
        check_ttl(ttl)
        now = await self._session.now(timeout=timeout)
        await self._session.write(
            "put_worker",
            worker.owner,
            to_micros(now),
            to_micros(now + timedelta(seconds=ttl)),
            to_micros(now - REMEMBERED),
            to_json(worker),
            timeout=timeout,
        )

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        check_name(owner, "owner")
        return bool(await self._session.write("delete_worker", owner, timeout=timeout))

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        return [_worker(row) for row in await self._session.read("load_workers", timeout=timeout)]

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        check_id(run_id, child=True)

        async def rows(name: str) -> list[Row]:
            return await self._session.read(name, run_id, timeout=timeout)

        living = await rows("load_tasks_of_run")
        return RunContents(
            receipts=tuple(unquote(id) for (id,) in await rows("load_receipts")),
            tasks=tuple(map(to_task, living)),
            holdings=tuple(filter(None, map(to_holding, living))),
            dead=tuple(map(to_dead_task, await rows("load_dead_tasks_of_run"))),
            keys=tuple(BoundKey(*map(unquote, row)) for row in await rows("load_keys_of_run")),
            facts=tuple(unquote(hash) for (hash,) in await rows("load_facts_of_root")),
        )

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        check_after(above)
        await self._session.write("skip_tokens", above, timeout=timeout)


def _worker(row: Row) -> Worker:
    data, started_at, seen_at, until = row
    return msgspec.structs.replace(
        from_json(data, Worker, where="the word of a worker"),
        started_at=from_micros(started_at),
        seen_at=from_micros(seen_at),
        until=from_micros(until),
    )
