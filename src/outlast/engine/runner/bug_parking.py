"""What a run that is parked because of a bug in its code leaves in its own inbox.

A delivery makes the code run; if the code then ends in a programming error, the delivery is durable and what the code
stated after it is not recorded. Corrected code continues from that delivery and may state something else. So nothing
can be recorded after it, and outcomes that arrive later wait in the inbox as reports, like those of queued steps::

    step a completed ──▶ code: KeyError      history ends with: a completed
    step b completed ──▶ report of b ──▶ inbox
                                         └──▶ corrected code: its statements, then b completed

A step that has not started, or was stopped, is reported as stopped, so that its attempt does not count as a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime

from msgspec import Raw

from outlast.engine.operations.map import MapCall
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.step import QueuedStepCall, StepCall, StepReport, stop_failure
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.replay_log import Undelivered
from outlast.engine.steps.in_flight import InFlight
from outlast.errors import Busy, TryAgain
from outlast.model.json import to_json
from outlast.model.payloads import MapProgress, StepCompleted, StepFailedEvent
from outlast.model.run import Run, Status
from outlast.model.run_contents import Item, ItemKind, Send
from outlast.ports.clock import Backoff
from outlast.ports.store import Store

log = logging.getLogger("outlast.engine")

NOTHING_IN_FLIGHT = (Status.PENDING, Status.PAUSED, Status.WAITING)
"""When a run with this status is claimed, its open attempts were not interrupted by a crash."""


def sends_of(
    execution: Execution, run: Run, in_flight: InFlight, now: datetime, *, is_counted: bool
) -> list[Send]:
    """What the run sends to itself: outcomes that were not delivered, and the attempts that did not start or were
    stopped. Without `is_counted` this process has just claimed the run, and its open attempts are as its last owner
    left them."""
    sends: list[Send] = []
    reported: set[str] = set()
    for number, one in enumerate(execution.undelivered):
        call = execution.open.get(one.key)
        report = None if call is None else _report_of(execution, call, one)
        if call is not None and report is not None:
            reported.add(one.key)
            sends.append(_send(run, call, report, str(number)))
    for call in _stopped(execution, run, in_flight, is_counted=is_counted):
        if call.key not in reported:
            life = execution.life_of(call)
            if isinstance(call, MapCall):
                report = StepReport(life=life, items=MapProgress(started=call.allowed))
            else:
                failed = stop_failure(call.attempt, now)
                report = StepReport(life=life, attempt=call.attempt, failed=failed)
            sends.append(_send(run, call, report, "stopped"))
    if run.status is Status.PAUSED:
        sends.append(Send(run_id=run.id, uid=run.uid, item=Item(kind=ItemKind.PAUSE)))
    return sends


def _report_of(execution: Execution, call: Operation, one: Undelivered) -> StepReport | None:
    """The report of an outcome. Other deliveries are left out: the next owner makes them again."""
    life = execution.life_of(call)
    match one.payload:
        case StepCompleted(duration_ns=duration_ns) if isinstance(call, StepCall):
            return StepReport(
                life=life, attempt=call.attempt, output=one.output, duration_ns=duration_ns
            )
        case StepFailedEvent() as failed if isinstance(call, StepCall):
            return StepReport(life=life, attempt=call.attempt, failed=failed)
        case MapProgress(running=None) as items if isinstance(call, MapCall):
            return StepReport(life=life, items=items)
    return None


def _stopped(
    execution: Execution, run: Run, in_flight: InFlight, *, is_counted: bool
) -> Iterator[StepCall | MapCall]:
    """The open attempts that would count as crashes, and are none."""
    for call in execution.open.values():
        if not isinstance(call, StepCall | MapCall) or not call.recorded or call.due is not None:
            continue
        never_started = call in execution.launches
        once = isinstance(call, StepCall) and call.step.at_most_once and not never_started
        if is_counted or never_started:
            # An at_most_once step that was cut off has an unknown outcome. A suspect has waited for its turn.
            queued = isinstance(call, QueuedStepCall)
            is_stopped = not (queued or once or call.key in in_flight.suspects)
        elif run.status is Status.PENDING:
            is_stopped = not once or call.key == run.recover_to
        else:
            queued = isinstance(call, QueuedStepCall)
            is_stopped = run.status in NOTHING_IN_FLIGHT and not queued
        if is_stopped:
            yield call


def _send(run: Run, call: Operation, report: StepReport, part: str) -> Send:
    attempt = getattr(call, "attempt", 0)
    item = Item(
        kind=ItemKind.STEP,
        name=call.key,
        id=f"parked {run.uid}/{call.key}/{attempt}/{run.token}/{part}",
        data=Raw(to_json(report)),
    )
    return Send(run_id=run.id, uid=run.uid, item=item)


async def send_all(store: Store, sends: list[Send], timeout_s: float) -> None:
    """Send these messages, and retry until they arrive or are refused."""
    backoff = Backoff(0.05, 1.0, factor=2)
    while True:
        try:
            receipts = await store.send(sends, timeout=timeout_s)
        except (TryAgain, OSError) as error:
            log.warning("run %s cannot be parked yet, trying again: %s", sends[0].run_id, error)
        else:
            left = zip(sends, receipts, strict=True)
            sends = [send for send, receipt in left if isinstance(receipt, Busy)]
        if not sends:
            return
        await backoff.wait(store.clock)
