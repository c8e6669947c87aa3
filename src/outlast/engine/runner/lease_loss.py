"""LeaseLossReporter: attempts that were cut off by a process that lives: its claim was superseded, or it has dropped
the run because of an error.

The process that takes a run over cannot know whether the one before it has died or only stood still,
so it counts each attempt that it finds open as one that may have killed its process. The one that
stood still reports it when it can, to the run's inbox, however late: then the attempt does not count as
a crash.
"""

from __future__ import annotations

import asyncio
import logging
from itertools import chain, repeat

from msgspec import Raw, Struct

from outlast.errors import Busy, Closed, OutlastError, Unsupported
from outlast.model.claim import Claim
from outlast.model.inbox import Item, Send
from outlast.model.json import to_json
from outlast.ports.store import Store

LOST = "lost"
PAUSES_S = (0.0, 1.0, 5.0, 20.0, 60.0)
"""Before each try, and the last of them before all others: what keeps a process from its lease may also
keep it from saying so."""

log = logging.getLogger("outlast.engine")


class LeaseLossReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which attempts of which steps and maps were cut off, and which never began."""

    attempts: dict[str, int]
    not_begun: dict[str, int] = {}


class LeaseLossReporter:
    """Tells runs what was cut off here. A call of the store may take `patience` seconds."""

    def __init__(self, store: Store, patience: float) -> None:
        self._store = store
        self._patience = patience
        self._telling: set[asyncio.Task[None]] = set()

    def tell(self, claim: Claim, report: LeaseLossReport) -> None:
        """Tell a run, soon, what was lost with a claim."""
        if report.attempts or report.not_begun:
            telling = asyncio.create_task(self._tell(claim, report))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def told(self, claim: Claim, report: LeaseLossReport) -> None:
        """Tell it now, or soon if that fails."""
        if not (report.attempts or report.not_begun):
            return
        if not await self._try(_send_of(claim, report)):
            self.tell(claim, report)

    async def close(self) -> None:
        """What was not told is counted as a death."""
        telling = list(self._telling)
        for task in telling:
            task.cancel()
        await asyncio.gather(*telling, return_exceptions=True)

    async def _tell(self, claim: Claim, report: LeaseLossReport) -> None:
        send = _send_of(claim, report)
        for pause in chain(PAUSES_S, repeat(PAUSES_S[-1])):
            await self._store.clock.sleep(pause)
            if await self._try(send):
                return

    async def _try(self, send: Send) -> bool:
        """Whether it was sent, or never can be."""
        try:
            [receipt] = await self._store.send([send], timeout=self._patience)
        except (Closed, Unsupported):
            return True
        except (OutlastError, OSError) as error:
            log.debug("run %s was not told what was cut off: %s", send.run_id, error)
            return False
        return not isinstance(receipt, Busy)


def _send_of(claim: Claim, report: LeaseLossReport) -> Send:
    item = Item(
        kind=LOST,
        id=f"{LOST} {claim.task_id or ''} {claim.token}",
        data=Raw(to_json(report)),
        sender=claim.owner,
    )
    return Send(run_id=claim.run_id, uid=claim.uid, item=item)
