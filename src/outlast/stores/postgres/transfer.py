"""What a transfer of runs to or from another store needs: the contents of a run, and tokens above those of the source."""

from __future__ import annotations

from outlast.model.run_contents import BoundKey, RunContents
from outlast.stores.postgres.rows import Row, to_dead_task, to_holding, to_task, unquote
from outlast.stores.postgres.session import SessionStore


class PostgresTransfer(SessionStore):
    """The contents of a run that a commit does not read back."""

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:

        async def rows(name: str) -> list[Row]:
            return await self._session.read(name, run_id, timeout=timeout)

        tasks = await rows("load_tasks_of_run")
        return RunContents(
            receipts=tuple(unquote(id) for (id,) in await rows("load_receipts")),
            tasks=tuple(map(to_task, tasks)),
            holdings=tuple(filter(None, map(to_holding, tasks))),
            dead=tuple(map(to_dead_task, await rows("load_dead_tasks_of_run"))),
            keys=tuple(BoundKey(*map(unquote, row)) for row in await rows("load_keys_of_run")),
            facts=tuple(unquote(hash) for (hash,) in await rows("load_facts_of_root")),
        )

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        await self._session.write("skip_tokens", above, timeout=timeout)
