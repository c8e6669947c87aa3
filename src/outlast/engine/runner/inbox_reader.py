"""InboxReader: reads the inbox of a run and delivers its items to the operations that wait for them.

A signal or an update that no operation waits for yet stays in `UnmatchedMessages`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from datetime import datetime

from msgspec import Raw

from outlast.engine.operations.ask import AskWait
from outlast.engine.operations.child import ChildRun
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.step import (
    LeaseLossReport,
    QueuedStepCall,
    StepCall,
    StepReport,
    stop_failure,
)
from outlast.engine.operations.waits import MessageWait, SignalWait
from outlast.engine.replay.error_text import storable
from outlast.engine.replay.execution import Execution
from outlast.errors import ContinueAsNew
from outlast.model.asks import Answer
from outlast.model.json import from_json
from outlast.model.payloads import (
    CancelRequested,
    ChildCompleted,
    ChildFailedEvent,
    HaltResumed,
    HaltStarted,
    MessageRejected,
    Payload,
    SignalReceived,
    StepCompleted,
    StepLost,
    StepProgress,
    UpdateAccepted,
)
from outlast.model.run_contents import Item, ItemKind
from outlast.ports.clock import read_with_retry
from outlast.ports.store import Store

PAGE = 1000
LEFT_TO_NEXT_LIFE = frozenset({ItemKind.CANCEL})
"""Items that a life which continues as new leaves to its next life."""
log = logging.getLogger("outlast.engine")


class InboxReader:
    """Reads the items of a run and delivers them. Signals and updates wait until the code wants them; all other items
    take effect at once and leave the inbox with the commit that records them. The first try of a read may take
    `timeout_s` seconds."""

    def __init__(self, store: Store, execution: Execution, timeout_s: float) -> None:
        self.seen = 0
        self.paused: bool | None = None
        self.has_items = False
        """Whether an item was ever read: most runs get none, and nothing has to be matched for them."""
        self.takes_over = False
        """Whether this process has not started anything of the run yet."""
        self._pauses: list[int] = []
        self._cancel = 0
        self._store = store
        self._execution = execution
        self._timeout_s = timeout_s
        self._messages = UnmatchedMessages()
        self._earlier_answers: dict[str, tuple[Item, Answer]] = {}
        self._earlier: dict[str, tuple[Item, StepReport]] = {}

    async def read(self) -> None:
        """Read the items that arrived since the last read."""
        while True:
            items = await self._read_page(self.seen)
            for item in items:
                if self._execution.bug is not None:
                    return  # the code takes nothing more: corrected code reads it
                self.seen = item.number
                self.has_items = True
                if item.number != self._cancel:
                    self._accept(item)
            if len(items) < PAGE:
                return

    async def cancel_after_bug(self) -> bool:
        """If the run was asked to cancel, deliver that to code that has ended in a programming error; whether it was."""
        after = self.seen
        while items := await self._read_page(after):
            for item in items:
                if item.kind == ItemKind.CANCEL:
                    self._cancel = item.number
                    self._execution.pending.consumes.append(item.number)
                    cancel = CancelRequested(reason=item.name, after_bug=True)
                    self._execution.deliver(cancel, self._store.clock.now())
                    return True
            after = items[-1].number
        return False

    async def _read_page(self, after: int) -> Sequence[Item]:
        run_id = self._execution.run_id
        return await read_with_retry(
            self._store.clock,
            lambda seconds: self._store.inbox(run_id, after=after, limit=PAGE, timeout=seconds),
            self._timeout_s,
            tries=None,
        )

    @property
    def has_undelivered(self) -> bool:
        """Whether items were read that the code has not received."""
        return bool(self._earlier or self._earlier_answers or self._messages.has_any)

    def match(self) -> None:
        """Deliver signals, updates and answers to the operations that wait for them."""
        while self._execution.bug is None:
            if self._earlier:
                self._match_earlier()
            if self._messages.has_any:
                self._messages.match(self._execution, self._store.clock.now())
            asks = [key for key in self._earlier_answers if isinstance(self._open(key), AskWait)]
            if not asks or self._execution.bug is not None:
                return
            self._answer(*self._earlier_answers.pop(asks[0]), self._store.clock.now())

    def _match_earlier(self) -> None:
        """Deliver results of an earlier life to calls that were made again with the same input."""
        execution = self._execution
        while asked := [key for key in self._earlier if key in execution.open]:
            for key in asked:
                if execution.bug is not None:
                    return
                item, report = self._earlier.pop(key)
                execution.pending.consumes.append(item.number)
                call = execution.open.get(key)
                if isinstance(call, StepCall) and call.is_call_with(report.input or Raw(b"{}")):
                    call.withdraw(execution)
                    self._deliver_earlier(call, report, self._store.clock.now())

    def warn_of_unread_signals(self) -> None:
        """The run has ended: signals that it never waited for may have a wrong name."""
        if self._messages.has_any and (names := self._messages.signals):
            log.warning(
                "run %s of workflow %r has ended and never waited for the signals %s. If that is not "
                "intended, compare their names with those in wait_for_signal(…)",
                self._execution.run_id, self._execution.workflow.name, names,
            )  # fmt: skip

    def consume_pauses(self) -> None:
        """Remove the requests to pause from the inbox with the next commit, which records the pause. Until then they
        stay there: running steps end first, and a crash meanwhile must not lose the request."""
        if self._pauses:
            self._execution.pending.consumes += self._pauses
            self._pauses = []

    def _accept(self, item: Item) -> None:
        execution = self._execution
        if item.kind in (ItemKind.SIGNAL, ItemKind.UPDATE):
            self._messages.put(item)
            return
        if item.kind in (ItemKind.PAUSE, ItemKind.UNPAUSE):
            self._pauses.append(item.number)
            self.paused = item.kind == ItemKind.PAUSE
            return
        if isinstance(execution.final_error, ContinueAsNew) and item.kind in LEFT_TO_NEXT_LIFE:
            return  # the next life takes it
        if item.kind == ItemKind.RESUME:
            answer = from_json(item.data or Raw(b"{}"), Answer, where="an answer")
            if answer.question is not None and not isinstance(self._open(item.name), AskWait):
                # Given in an earlier life: kept until the code asks.
                self._earlier_answers[item.name] = (item, answer)
                return
            self._answer(item, answer, self._store.clock.now())
            return
        if item.kind == ItemKind.STEP and self._keep_for_later(item):
            return
        execution.pending.consumes.append(item.number)
        now = self._store.clock.now()
        match item.kind:
            case ItemKind.CANCEL:
                self.paused = False  # closing and compensating do not wait
                if execution.is_active:
                    execution.deliver(CancelRequested(reason=item.name), now)
            case ItemKind.CHILD_COMPLETED | ItemKind.CHILD_FAILED:
                outcome = _child_payload(item)
                child = self._child(item.name)
                if child is not None and child.accepts(outcome):
                    execution.deliver(outcome, now, key=child.key)
            case ItemKind.STEP:
                self._deliver_report(item, now)
            case "lost":
                self._deliver_losses(item, now)
            case ItemKind.ADMIT:
                pass  # it was admitted from its queue, and has started
            case ItemKind.RECEIPT:
                pass  # it represents an item that was processed in another store
            case _:
                log.warning("run %s got an item of unknown kind %r", execution.run_id, item.kind)

    def _keep_for_later(self, item: Item) -> bool:
        """Keep the outcome of a call that this life has yet to make; whether it is one."""
        report = _report(item)
        if report.input is None or not self._execution.is_own(report.life):
            return False
        self._earlier[item.name] = (item, report)
        return True

    def _deliver_report(self, item: Item, now: datetime) -> None:
        call = self._execution.open.get(item.name)
        report = _report(item)
        if not report.attempt:
            if self._execution.is_own(report.life):
                self._deliver_earlier(call, report, now)
            return
        if not isinstance(call, StepCall) or report.life != self._execution.life_of(call):
            return  # the inbox passes on to the next life, which may call a step under the same key
        if isinstance(call, QueuedStepCall):
            if call.attempt != report.attempt or call.due is not None:
                return  # a report of an attempt that has ended
        elif not call.step.transactional and (call.attempt, call.due) != (report.attempt, None):
            return  # not the attempt that ended while its run was about to be parked
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

    def _deliver_earlier(self, call: Operation | None, report: StepReport, now: datetime) -> None:
        """Deliver the outcome that a step or a map had in an earlier life, after the failure that is retried."""
        if isinstance(call, MapCall) and report.items is not None:
            self._execution.deliver(report.items, now, key=call.key)
            if self._execution.open.get(call.key) is call and call not in self._execution.launches:
                self._execution.deliver(call.next_attempt(), now, key=call.key)
        elif isinstance(call, StepCall) and report.failed is not None:
            self._execution.deliver(call.after_earlier_life(report.failed, now), now, key=call.key)
        elif isinstance(call, StepCall) and report.output is not None:
            done = StepCompleted(duration_ns=report.duration_ns)
            self._execution.deliver(done, now, key=call.key, output=report.output)

    def _deliver_losses(self, item: Item, now: datetime) -> None:
        data = item.data or Raw(b"{}")
        report = from_json(data, LeaseLossReport, where="report of a lost lease")
        if not self._execution.is_own(report.life):
            return
        for key, attempt in (report.attempts | report.not_started).items():
            call = self._execution.open.get(key)
            if not isinstance(call, StepCall | MapCall):
                continue
            if key in report.not_started and self._never_started(call, attempt):
                self._execution.deliver(stop_failure(attempt, now), now, key=key)
            elif call.may_be_lost(attempt):
                self._execution.deliver(StepLost(attempt=attempt), now, key=key)

    def _never_started(self, call: StepCall | MapCall, attempt: int) -> bool:
        """Whether the open attempt is one that the previous owner did not start, and neither has this one."""
        is_open = call.is_inherited and call.due is None and call.attempt == attempt
        return self.takes_over and is_open and call not in self._execution.launches

    def _child(self, child_id: str) -> ChildRun | None:
        for operation in self._execution.open.values():
            if isinstance(operation, ChildRun) and operation.child_id == child_id:
                return operation
        return None

    def _open(self, key: str) -> Operation | None:
        return self._execution.open.get(key)

    def _answer(self, item: Item, answer: Answer, now: datetime) -> None:
        """Deliver an answer to the question that it names. If the code no longer asks it, or asks something else by
        now, the answer is set aside."""
        execution = self._execution
        if not execution.is_active:
            return  # it stays in the inbox: the next life may ask the same
        execution.pending.consumes.append(item.number)
        ask = self._open(item.name)
        if not isinstance(ask, AskWait):
            problem = "the question was closed before the answer came"
        elif ask.token != answer.ask and not _is_same_question(ask, answer):
            problem = "the run asks another question by now"
        elif (misfit := ask.problem_of(answer.value)) is not None:
            rejection = _rejection("answer", item.name, answer.value, misfit)
            execution.deliver(rejection, now, key=ask.key)
            return
        else:
            at = answer.at or item.sent_at
            given = HaltResumed(value=answer.value, id=answer.id, by=answer.by, at=at)
            execution.deliver(given, now, key=ask.key)
            return
        execution.deliver(_rejection("answer", item.name, answer.value, problem), now)


def _is_same_question(ask: AskWait, answer: Answer) -> bool:
    """Whether an answer of an earlier life is to what this life asks."""
    if answer.question is None:
        return False
    asked = from_json(answer.question, HaltStarted, where="the question of an answer")
    return ask.asks_the_same(asked)


def _report(item: Item) -> StepReport:
    data = item.data or Raw(b"{}")
    return from_json(data, StepReport, where=f"report of step {item.name!r}")


def _child_payload(item: Item) -> ChildCompleted | ChildFailedEvent:
    data = item.data or Raw(b"{}")
    if item.kind == ItemKind.CHILD_COMPLETED:
        return from_json(data, ChildCompleted, where=f"outcome of {item.name!r}")
    return from_json(data, ChildFailedEvent, where=f"outcome of {item.name!r}")


class UnmatchedMessages:
    """Signals and updates that the run has not received yet, by kind and name, the oldest first."""

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], deque[Item]] = {}

    @property
    def has_any(self) -> bool:
        """Whether there are any."""
        return bool(self._items)

    @property
    def signals(self) -> list[str]:
        """The names of the signals."""
        return sorted(name for kind, name in self._items if kind == ItemKind.SIGNAL)

    def put(self, item: Item) -> None:
        """Add a signal or an update."""
        self._items.setdefault((item.kind, item.name), deque()).append(item)

    def match(self, execution: Execution, now: datetime) -> None:
        """Deliver what the run waits for, in the order of the inbox. A delivery lets the code run, so its waits are
        read again after each."""
        while self._items and execution.bug is None:
            waits = _waits(execution)
            updates = execution.updates.names
            wanted = [
                (items[0].number, kind, name)
                for (kind, name), items in self._items.items()
                if name in (waits if kind == ItemKind.SIGNAL else updates)
            ]
            if not wanted:
                return
            _, kind, name = min(wanted)
            item = self._take(kind, name, execution)
            if kind == ItemKind.SIGNAL:
                received = SignalReceived(signal_name=name, payload=item.data)
                wait = waits[name]
                execution.deliver(_checked(wait, item, received), now, key=wait.key)
            else:
                input = item.data or Raw(b"null")
                # An update that a retry sent again names the original one.
                id = item.sender or item.id
                accepted = UpdateAccepted(update_id=id, name=name, input=input)
                execution.deliver(accepted, now, key=execution.updates.next_key(name))

    def _take(self, kind: str, name: str, execution: Execution) -> Item:
        """Remove and return the oldest one; it leaves the inbox with the next commit."""
        items = self._items[kind, name]
        item = items.popleft()
        if not items:
            del self._items[kind, name]
        execution.pending.consumes.append(item.number)
        return item


def _waits(execution: Execution) -> dict[str, SignalWait]:
    """The waits for signals, by name: of several for one name, the first."""
    waits: dict[str, SignalWait] = {}
    for wait in execution.open.values():
        if isinstance(wait, SignalWait):
            waits.setdefault(wait.signal, wait)
    return waits


def _checked(wait: MessageWait, item: Item, delivery: Payload) -> Payload:
    """The delivery of a message that has the type which the code waits for; otherwise its rejection."""
    problem = wait.problem_of(item.data)
    return delivery if problem is None else _rejection(item.kind, item.name, item.data, problem)


def _rejection(kind: str, name: str, value: Raw | None, problem: str) -> MessageRejected:
    log.warning("a message was rejected, and the code waits on: %s", problem)
    return MessageRejected(kind=kind, name=name, value=value, error=storable(problem))
