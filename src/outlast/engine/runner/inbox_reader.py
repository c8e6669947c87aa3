"""InboxReader: how what others have sent to a run becomes part of its history.

UnmatchedMessages: signals and updates that were sent and that the run has not taken yet.
"""

from __future__ import annotations

import logging
from collections import deque
from datetime import datetime

from msgspec import Raw

from outlast.engine.operations.child import ChildRun
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.queued_step import QueuedStepCall, StepReport
from outlast.engine.operations.step import StepCall, stop_of
from outlast.engine.operations.waits import HaltWait, SignalWait
from outlast.engine.replay.execution import Execution
from outlast.engine.runner.backoff import patiently
from outlast.engine.runner.lease_loss import LeaseLossReport
from outlast.errors import ContinueAsNew
from outlast.model.inbox import Item
from outlast.model.json import from_json
from outlast.model.payloads import (
    CancelRequested,
    ChildCompleted,
    ChildFailedEvent,
    HaltResumed,
    SignalReceived,
    StepCompleted,
    StepLost,
    StepProgress,
    UpdateAccepted,
)
from outlast.ports.store import Store

PAGE = 1000
FOR_THE_NEXT_LIFE = frozenset({"cancel"})
"""What is not taken any more by a life that has decided to continue as new."""
log = logging.getLogger("outlast.engine")


class InboxReader:
    """Reads a run's items and hands each to what it is for. Signals and updates wait until they
    are asked for; all else takes effect at once and is consumed with the commit that records it.
    A look may take `patience` seconds at first."""

    def __init__(self, store: Store, execution: Execution, patience: float) -> None:
        self.seen = 0
        self.paused: bool | None = None
        self._pauses: list[int] = []
        self.takes_over = False
        """Whether this process has begun nothing of the run yet."""
        self._store = store
        self._execution = execution
        self._patience = patience
        self._mailbox = UnmatchedMessages()
        self._resumes: dict[str, Item] = {}
        self._earlier: dict[str, tuple[Item, StepReport]] = {}

    async def read(self) -> None:
        """Take in what has come since the last look."""
        run_id = self._execution.run_id
        while True:
            items = await patiently(
                self._store.clock,
                lambda seconds: self._store.inbox(
                    run_id, after=self.seen, limit=PAGE, timeout=seconds
                ),
                self._patience,
                tries=None,
            )
            for item in items:
                self.seen = item.number
                self._take(item)
            if len(items) < PAGE:
                return

    def match(self) -> None:
        """Hand signals, updates and answers to halts to those who want them."""
        while True:
            if self._earlier:
                self._match_earlier()
            if self._mailbox.has_any:
                self._mailbox.match(self._execution, self._store.clock.now())
            if not self._resumes:
                return
            asked = next((key for key in self._resumes if self._halt(key) is not None), None)
            if asked is None:
                return
            self._take(self._resumes.pop(asked))

    def _match_earlier(self) -> None:
        """Give the results of an earlier life to the calls that have been made again with the same input."""
        execution = self._execution
        while asked := [key for key in self._earlier if key in execution.open]:
            for key in asked:
                item, report = self._earlier.pop(key)
                execution.draft.consumes.append(item.number)
                call = execution.open.get(key)
                if isinstance(call, StepCall) and call.is_call_with(report.input or Raw(b"{}")):
                    call.take_back(execution)
                    self._take_earlier(call, report, self._store.clock.now())

    def tell_what_is_left(self) -> None:
        """The run has ended. Signals that nobody has asked for may have had a wrong name."""
        if self._mailbox.has_any and (names := self._mailbox.signals):
            log.warning(
                "run %s of workflow %r has ended and never asked for the signals %s. If that is "
                "not meant, compare their names with those in wait_for(…)",
                self._execution.run_id, self._execution.workflow.name, names,
            )  # fmt: skip

    def consume_pauses(self) -> None:
        """The next commit records that the run is paused, or it no longer is. Until then such an
        item stays where it is: steps that run may end first, and a process that dies meanwhile
        must not take the wish to pause with it."""
        if self._pauses:
            self._execution.draft.consumes += self._pauses
            self._pauses = []

    def _take(self, item: Item) -> None:
        execution = self._execution
        if item.kind in ("signal", "update"):
            self._mailbox.put(item)
            return
        if item.kind in ("pause", "unpause"):
            self._pauses.append(item.number)
            self.paused = item.kind == "pause"
            return
        if isinstance(execution.ends_with, ContinueAsNew) and item.kind in FOR_THE_NEXT_LIFE:
            return  # the next life takes it
        if item.kind == "resume" and item.name and self._halt(item.name) is None:
            self._resumes[item.name] = item  # answered in an earlier life: it waits to be asked for
            return
        if item.kind == "step" and self._is_kept(item):
            return
        execution.draft.consumes.append(item.number)
        now = self._store.clock.now()
        match item.kind:
            case "cancel":
                self.paused = False  # what is done on the way out, and undone, cannot wait
                if execution.is_going_on:
                    execution.deliver(CancelRequested(reason=item.name), now)
            case "child.completed" | "child.failed":
                outcome = _child_payload(item)
                child = self._child(item.name)
                if child is not None and child.takes(outcome):
                    execution.deliver(outcome, now, key=child.key)
            case "step":
                self._take_report(item, now)
            case "lost":
                self._take_losses(item, now)
            case "resume":
                halt = self._halt(item.name)
                if halt is not None:
                    resumed = HaltResumed(value=item.data or Raw(b"null"))
                    execution.deliver(resumed, now, key=halt.key)
            case "admit":
                pass  # its turn in the queue has come: it has begun
            case "receipt":
                pass  # it stands for an item that was consumed in another store
            case _:
                log.warning("run %s got an item of unknown kind %r", execution.run_id, item.kind)

    def _is_kept(self, item: Item) -> bool:
        """Whether it is the outcome of a call that this life has yet to make."""
        report = _report(item)
        if report.input is None or not self._execution.is_own(report.life):
            return False
        self._earlier[item.name] = (item, report)
        return True

    def _take_report(self, item: Item, now: datetime) -> None:
        call = self._execution.open.get(item.name)
        report = _report(item)
        if not report.attempt:
            if self._execution.is_own(report.life):
                self._take_earlier(call, report, now)
            return
        if isinstance(call, QueuedStepCall):
            if call.attempt != report.attempt or call.due is not None:
                return  # of an attempt that is over
        elif not isinstance(call, StepCall) or not call.step.transactional:
            return
        if report.progress is not None:
            progress = StepProgress(attempt=report.attempt, details=report.progress)
            self._execution.deliver(progress, now, key=call.key)
        if report.failed is not None:
            failed = report.failed
            if isinstance(call, QueuedStepCall):
                failed = call.after_report(failed, now)
            self._execution.deliver(failed, now, key=call.key)
        elif report.output is not None:
            done = StepCompleted(duration_ns=report.duration_ns)
            self._execution.deliver(done, now, key=call.key, output=report.output)

    def _take_earlier(self, call: Operation | None, report: StepReport, now: datetime) -> None:
        """What became of a step or a map in an earlier life, after the failure that is retried."""
        if isinstance(call, MapCall) and report.items is not None:
            self._execution.deliver(report.items, now, key=call.key)
            if self._execution.open.get(call.key) is call and call not in self._execution.launches:
                self._execution.deliver(call.next_attempt(), now, key=call.key)
        elif isinstance(call, StepCall) and report.failed is not None:
            self._execution.deliver(call.after_earlier(report.failed, now), now, key=call.key)
        elif isinstance(call, StepCall) and report.output is not None:
            done = StepCompleted(duration_ns=report.duration_ns)
            self._execution.deliver(done, now, key=call.key, output=report.output)

    def _take_losses(self, item: Item, now: datetime) -> None:
        data = item.data or Raw(b"{}")
        report = from_json(data, LeaseLossReport, where="report of a lost lease")
        for key, attempt in (report.attempts | report.not_begun).items():
            call = self._execution.open.get(key)
            if not isinstance(call, StepCall | MapCall):
                continue
            if key in report.not_begun and self._never_began(call, attempt):
                self._execution.deliver(stop_of(attempt, now), now, key=key)
            elif call.may_be_lost(attempt):
                self._execution.deliver(StepLost(attempt=attempt), now, key=key)

    def _never_began(self, call: StepCall | MapCall, attempt: int) -> bool:
        """Whether the open attempt is one that the owner before did not begin: this one has begun nothing."""
        is_open = call.is_inherited and call.due is None and call.attempt == attempt
        return self.takes_over and is_open and call not in self._execution.launches

    def _child(self, child_id: str) -> ChildRun | None:
        for operation in self._execution.open.values():
            if isinstance(operation, ChildRun) and operation.child_id == child_id:
                return operation
        return None

    def _halt(self, key: str) -> HaltWait | None:
        halts = [op for op in self._execution.open.values() if isinstance(op, HaltWait)]
        return next((halt for halt in halts if key in ("", halt.key)), None)


def _report(item: Item) -> StepReport:
    data = item.data or Raw(b"{}")
    return from_json(data, StepReport, where=f"report of step {item.name!r}")


def _child_payload(item: Item) -> ChildCompleted | ChildFailedEvent:
    data = item.data or Raw(b"{}")
    if item.kind == "child.completed":
        return from_json(data, ChildCompleted, where=f"outcome of {item.name!r}")
    return from_json(data, ChildFailedEvent, where=f"outcome of {item.name!r}")


class UnmatchedMessages:
    """By kind and name; of each the oldest first."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], deque[Item]] = {}

    @property
    def has_any(self) -> bool:
        """Whether anything is here."""
        return bool(self._items)

    @property
    def signals(self) -> list[str]:
        """The names of the signals that are here."""
        return sorted(name for kind, name in self._items if kind == "signal")

    def put(self, item: Item) -> None:
        """A signal or an update has come."""
        self._items.setdefault((item.kind, item.name), deque()).append(item)

    def match(self, execution: Execution, now: datetime) -> None:
        """Deliver what the run can take now, the oldest first: in the order of the inbox, whatever
        the names are. A delivery lets the code run, so what it can take is looked up after each."""
        while self._items:
            waits = _waits(execution)
            updates = execution.updates.names
            wanted = [
                (items[0].number, kind, name)
                for (kind, name), items in self._items.items()
                if name in (waits if kind == "signal" else updates)
            ]
            if not wanted:
                return
            _, kind, name = min(wanted)
            item = self._take(kind, name, execution)
            if kind == "signal":
                received = SignalReceived(signal_name=name, payload=item.data)
                execution.deliver(received, now, key=waits[name])
            else:
                input = item.data or Raw(b"null")
                # One that is sent again by a retry names the update that it stands for.
                id = item.sender or item.id
                accepted = UpdateAccepted(update_id=id, name=name, input=input)
                execution.deliver(accepted, now, key=execution.updates.next_key(name))

    def _take(self, kind: str, name: str, execution: Execution) -> Item:
        """The oldest one, which leaves the inbox with the next commit."""
        items = self._items[kind, name]
        item = items.popleft()
        if not items:
            del self._items[kind, name]
        execution.draft.consumes.append(item.number)
        return item


def _waits(execution: Execution) -> dict[str, str]:
    """The keys of the waits for signals, by name: of several for one name, the one that asked first."""
    waits: dict[str, str] = {}
    for wait in execution.open.values():
        if isinstance(wait, SignalWait):
            waits.setdefault(wait.signal, wait.key)
    return waits
