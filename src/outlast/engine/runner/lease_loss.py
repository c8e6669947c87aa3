"""LeaseLossReporter: reports attempts that were cut off in a process that lives on.

The process that takes a run over cannot know whether the previous owner crashed or was only suspended, so it counts
each attempt that it finds open as an interruption. A process that lost its claim, or dropped the run because of an
error, sends a report to the run's inbox, however late: then these attempts do not count.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec import Raw

from outlast.engine.operations.step import LeaseLossReport
from outlast.errors import Busy, Closed, OutlastError, Unsupported
from outlast.model.claim import Claim
from outlast.model.inbox import Item, Send
from outlast.model.json import to_json
from outlast.ports.backoff import Backoff
from outlast.ports.store import Store

LOST = "lost"
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""What keeps a process from renewing its lease may also keep it from reporting that for long."""

log = logging.getLogger("outlast.engine")


class LeaseLossReporter:
    """Sends lease-loss reports of this process. A call of the store may take `timeout_s` seconds."""

    def __init__(self, store: Store, timeout_s: float) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._reporting: set[asyncio.Task[None]] = set()

    def report(self, claim: Claim, report: LeaseLossReport) -> None:
        """Send a report in the background, and retry until it arrives."""
        if report.attempts or report.not_started:
            reporting = asyncio.create_task(self._report(claim, report))
            self._reporting.add(reporting)
            reporting.add_done_callback(self._reporting.discard)

    async def report_now(self, claim: Claim, report: LeaseLossReport) -> None:
        """Send a report now, and in the background if that fails."""
        if not (report.attempts or report.not_started):
            return
        if not await self._try(_send_of(claim, report)):
            self.report(claim, report)

    async def close(self) -> None:
        """Stop. Attempts that could not be reported count as interruptions."""
        reporting = list(self._reporting)
        for task in reporting:
            task.cancel()
        await asyncio.gather(*reporting, return_exceptions=True)

    async def _report(self, claim: Claim, report: LeaseLossReport) -> None:
        send, backoff = _send_of(claim, report), Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, factor=4)
        while not await self._try(send):
            await backoff.wait(self._store.clock)

    async def _try(self, send: Send) -> bool:
        """Whether the report was sent, or never can be."""
        try:
            [receipt] = await self._store.send([send], timeout=self._timeout_s)
        except (Closed, Unsupported):
            return True
        except (OutlastError, OSError) as error:
            log.debug("the lease-loss report for run %s was not sent: %s", send.run_id, error)
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
