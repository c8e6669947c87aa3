"""What a transfer of runs to or from another store needs: the contents of a run, and tokens above those of
the source."""

from __future__ import annotations

from outlast.model.run_contents import (
    BoundKey,
    HeldTask,
    RunContents,
)
from outlast.stores.memory.tables import TableStore, private


class MemoryTransfer(TableStore):
    """Contents of a run that a commit does not read back, and the counter of tokens."""

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        with self._life(run_id) as life:
            tables = self._tables
            if life is None:
                return RunContents()
            own = [one for one in tables.tasks.values() if one.task.run_id == run_id]
            own.sort(key=lambda one: one.order)
            return RunContents(
                receipts=tuple(sorted(life.item_ids, key=life.item_ids.__getitem__)),
                tasks=tuple(private(one.task) for one in own),
                holdings=tuple(
                    HeldTask(one.task.id, one.task.queue, one.owner, one.claimed_until)
                    for one in own
                    if one.owner is not None
                ),
                dead=tuple(one for one in tables.dead.values() if one.task.run_id == run_id),
                keys=tuple(
                    BoundKey(scope, key, value)
                    for (scope, key), (value, owner) in sorted(tables.keys.items())
                    if owner == run_id
                ),
                facts=tuple(sorted(hash for root, hash in tables.facts if root == run_id)),
            )

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        with self._locked() as tables:
            tables.token = max(tables.token, above)
