"""Losses: attempts that were cut off because a lease was lost, by a process that lives.

Whoever takes over a run cannot know whether the process before it has died or only stood still, so it
counts each attempt that it finds open as one that may have killed its process. The one that stood still
says so when it can: its word goes to the run's inbox, and such an attempt is no death.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from msgspec import Raw, Struct

from outlast.errors import Closed, OutlastError
from outlast.model.claim import Claim
from outlast.model.inbox import Item, Send
from outlast.model.wire import to_json
from outlast.ports.store import Store

LOST = "lost"
PAUSES = (0.0, 1.0, 5.0, 20.0, 60.0)
"""Seconds before each try: what keeps a process from its lease may also keep it from saying so."""

log = logging.getLogger("outlast.engine")


class LossReport(Struct, frozen=True, kw_only=True):
    """Which attempts of which steps and maps were cut off."""

    attempts: dict[str, int]


class Losses:
    """Tells runs what was cut off here. A call of the store may take `patience` seconds."""

    def __init__(self, store: Store, patience: float) -> None:
        self._store = store
        self._patience = patience
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, claim: Claim, attempts: Mapping[str, int]) -> None:
        """Tell a run, soon, that these attempts were lost with a claim."""
        if attempts:
            telling = asyncio.create_task(self._tell(claim, dict(attempts)))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """What was not told is counted as a death."""
        telling = list(self._telling)
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)

    async def _tell(self, claim: Claim, attempts: dict[str, int]) -> None:
        item = Item(
            kind=LOST,
            id=f"{LOST} {claim.task_id or ''} {claim.token}",
            data=Raw(to_json(LossReport(attempts=attempts))),
            sender=claim.owner,
        )
        send = Send(run_id=claim.run_id, uid=claim.uid, item=item)
        for pause in PAUSES:
            await self._store.clock.sleep(pause)
            try:
                await self._store.send([send], timeout=self._patience)
            except Closed:
                return
            except OutlastError as error:
                log.debug("run %s was not told what was cut off: %s", claim.run_id, error)
            else:
                return
