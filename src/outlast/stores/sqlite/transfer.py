"""What a transfer of runs to or from another store needs: the contents of a run, and tokens above those of
the source."""

from __future__ import annotations

from outlast.model.run_contents import BoundKey, DeadTask, HeldTask, RunContents
from outlast.model.times import from_micros
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.rows import moment
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import SessionStore
from outlast.stores.sqlite.tasks import DeadTaskRow, TaskRow, to_task

LOAD_RECEIPTS = query("load_receipts")
LOAD_TASKS_OF_RUN = query("load_tasks_of_run")
LOAD_DEAD_TASKS_OF_RUN = query("load_dead_tasks_of_run")
LOAD_KEYS_OF_RUN = query("load_keys_of_run")
LOAD_FACTS_OF_ROOT = query("load_facts_of_root")
SKIP_TOKENS = query("skip_tokens")


class SqliteTransfer(SessionStore):
    """Contents of a run that a commit does not read back, and the counter of tokens."""

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        return await self._session.read(
            lambda db: _load_contents(db, run_id), timeout=timeout, small=False
        )

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        await self._session.write(
            lambda db: db.execute(SKIP_TOKENS, (above, above)), timeout=timeout
        )


def _load_contents(connection: Connection, run_id: str) -> RunContents:
    def rows(sql: str) -> list[tuple[object, ...]]:
        return connection.execute(sql, (run_id,)).fetchall()

    dead = [DeadTaskRow(*row) for row in rows(LOAD_DEAD_TASKS_OF_RUN)]  # type: ignore[arg-type]
    living = [TaskRow(*row) for row in rows(LOAD_TASKS_OF_RUN)]  # type: ignore[arg-type]
    return RunContents(
        receipts=tuple(str(id) for (id,) in rows(LOAD_RECEIPTS)),
        tasks=tuple(map(to_task, living)),
        holdings=tuple(
            HeldTask(row.id, row.queue, row.owner, moment(row.claimed_until))
            for row in living
            if row.owner is not None
        ),
        dead=tuple(DeadTask(to_task(row), row.reason, from_micros(row.died_at)) for row in dead),
        keys=tuple(BoundKey(*map(str, row)) for row in rows(LOAD_KEYS_OF_RUN)),
        facts=tuple(str(hash) for (hash,) in rows(LOAD_FACTS_OF_ROOT)),
    )
