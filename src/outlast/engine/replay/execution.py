"""Execution: one run in memory. It turns history into running code and running code into history.

Two kinds of events make a history. *Statements* are what the code says: it wants a step, a timer,
a child; it no longer wants one; it has chosen a branch. *Deliveries* are what the world answers: a
step has completed, a timer has fired, a signal has come. Live and in replay the same thing
happens: a delivery is applied, the code runs until nothing is ready, and what it says then is
matched with history or, at its end, recorded::

    replay    history ──▶ delivery ──▶ code runs ──▶ says what history says it said?
    live      outcome ──▶ delivery ──▶ code runs ──▶ says something new ──▶ into the next commit

Nothing here waits, reads a clock or touches a store.

PendingCommit: what a turn has gathered and the next commit makes durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Raw, Struct

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.compensation import UNDO, Undoing
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.waits import start_timer
from outlast.engine.replay.asyncio_internals import running_loop
from outlast.engine.replay.closing import Closing
from outlast.engine.replay.event_loop import RunLoop
from outlast.engine.replay.replay_log import HistoryIndex, ReplayLog
from outlast.engine.replay.scope import Scope, current_scope
from outlast.engine.replay.updates import Updates
from outlast.errors import Mismatch, RunEnding
from outlast.model.commit import Start
from outlast.model.event import Event, EventType
from outlast.model.event_data import payload_of, to_event, type_of
from outlast.model.ids import child_id
from outlast.model.inbox import Send
from outlast.model.payloads import (
    CancelRequested,
    OperationAbandoned,
    Payload,
    UpdateAccepted,
    WorkflowStarted,
)
from outlast.model.queue_options import QueueOptions
from outlast.model.run import Attribute
from outlast.model.run_contents import Fact
from outlast.model.task import Task
from outlast.model.times import EPOCH
from outlast.ports.codec import Codec

ENDINGS = frozenset(
    {
        EventType.WORKFLOW_COMPLETED,
        EventType.WORKFLOW_FAILED,
        EventType.WORKFLOW_CANCELLED,
        EventType.WORKFLOW_CONTINUED,
        EventType.WORKFLOW_MOVED,
    }
)


class Evicted(BaseException):
    """Raised by every outlast call in code that is being thrown out of memory. Not an error: the
    run goes on elsewhere or later, so nothing that the code does now counts."""


class Execution:
    """The code of one run, its open operations, and what is not yet durable."""

    def __init__(
        self,
        workflow: WorkflowDefinition,
        *,
        run_id: str,
        uid: str,
        codec: Codec,
        digest: ReplayLog | None = None,
    ) -> None:
        self.workflow = workflow
        self.run_id = run_id
        self.uid = uid
        self.codec = codec
        self.now = EPOCH
        self.open: dict[str, Operation] = {}
        self.launches: list[Operation] = []
        self.abandoned: list[Operation] = []
        self.draft = PendingCommit()
        self.digest = digest or ReplayLog()
        self.past = HistoryIndex()
        self.loop = _WorkflowLoop(self)
        self.seed = uid
        self.origin: Raw | None = None
        self.place: QueueOptions | None = None
        self.evicted = False
        self.cancel_reason: str | None = None
        self.is_guarded = False
        """Whether calls of the code are checked first: it is being closed, or thrown out."""
        self.closing = Closing(self)
        self.undoing = Undoing(self)
        self.updates = Updates(self)
        self._said: dict[tuple[str, str], tuple[Payload, Operation | None]] = {}
        self._main: asyncio.Task[Any] | None = None
        self._ended = False
        self._reads_history = False
        self._lineage: Sequence[tuple[str, int]] = ()
        self._asked: dict[str, tuple[str, Raw]] = {}
        self.started: WorkflowStarted | None = None

    # -- history to code ----------------------------------------------------------------------

    def replay(self, events: Sequence[Event]) -> None:
        """Bring the code to where `events` left it."""
        self.past = past = HistoryIndex(events)
        self._reads_history = True
        with self.loop.inside:
            for event in events:
                past.advance(event)
                if event.type in ENDINGS:
                    self._ended = True
                    return
                if not past.skips(event):
                    self._take(event, payload_of(event))
        self._reads_history = False
        self.launches.clear()
        self.abandoned.clear()
        self._record_statements()

    def deliver(
        self, payload: Payload, at: datetime, *, key: str = "", output: Raw | None = None
    ) -> None:
        """Record what the world has answered, let the code run on it, and record what it says."""
        event = to_event(
            payload,
            run_id=self.run_id,
            step_name=key,
            output=output,
            timestamp=max(at, self.now),
        )
        self.draft.events.append(event)
        operation = self.open.get(key)
        self._take(event, payload)
        if operation is not None:
            operation.enact(self, payload)
        self._record_statements()

    def _take(self, event: Event, payload: Payload) -> None:
        key = event.step_name
        said = self._said.pop((key, event.type), None)
        if said is not None:
            self._settle(key, event, payload)
            return
        if self._said and not self.past.ends_what_is_skipped(event):
            # All that the code said before this delivery was recorded before it, or never. But the
            # end of a scope was a statement when it ran: others may have spoken after it.
            raise self._mismatch(event)
        operation = self.open.get(key)
        if operation is not None and operation.recorded:
            if not operation.apply(event, payload):
                return
            del self.open[key]
            self.now = event.timestamp
        else:
            self.now = event.timestamp
            self._take_unasked(event, payload)
        self._run()

    def _take_unasked(self, event: Event, payload: Payload) -> None:
        """What the code has not asked for: its beginning, an update, that it is to stop."""
        match payload:
            case WorkflowStarted():
                self.seed = payload.seed or self.uid
                self.origin = payload.origin or payload.input
                self.place = payload.place
                self._lineage, self._asked = payload.lineage, payload.asked
                self.started = payload
                self._begin(payload)
            case CancelRequested(reason=reason):
                if self.cancel_reason is None or not self.closing.has_failed:
                    self.cancel_reason = reason
                self.closing.cancel(self._main, reason)
            case UpdateAccepted() if self.updates.accept(event.step_name, payload):
                pass
            case _:
                raise self._mismatch(event)

    def _run(self) -> None:
        """Let the code run until it rests; if it has failed, it is closed, and then what it did is
        undone."""
        self.loop.drain(self.now.timestamp())  # not `drain`: most deliveries come this way
        if self._main is not None and self._main.done() and self.closing.advance(self._main):
            undo = self.undoing.begin(self._main)
            if undo is not None:
                self._main = self.loop.start_task(undo, Scope(UNDO))
                self.drain()

    def drain(self) -> None:
        """Let the code run until it rests."""
        self.loop.drain(self.now.timestamp())

    def _settle(self, key: str, event: Event, payload: Payload) -> None:
        """A statement is recorded: the operation takes it in, with what history says of it."""
        operation = self.open.get(key)
        if operation is not None:
            if self._reads_history and not operation.is_inherited:
                operation.is_inherited = True
                operation.asked_at = event.sequence
            operation.recorded = True
            if isinstance(payload, OperationAbandoned):
                if not payload.awaited:
                    self.abandoned.append(operation)
                    del self.open[key]
            elif operation.apply(event, payload):
                del self.open[key]

    def _begin(self, started: WorkflowStarted) -> None:
        args, kwargs = self.workflow.signature.decode_call(self.codec, started.input)
        main = self.updates.around(self.workflow.main(self, args, kwargs))
        self._main = self.loop.start_task(main, self.loop.root)

    # -- code to history ----------------------------------------------------------------------

    def ask(self, operation: Operation) -> Operation:
        """Register what the code wants. Its intent is recorded when the code has come to rest."""
        if self.is_guarded:
            self._check_call(asks=True)
        operation.key = key = self.scope.key(operation.name)
        self.open[key] = operation
        self.say(key, operation.intent(), operation)
        return operation

    async def answer(self, operation: Operation) -> Any:
        """Ask, and await what the world answers. If the code stops waiting, that is recorded."""
        operation.future = self.loop.create_future()
        self.ask(operation)
        try:
            return await operation.future
        except asyncio.CancelledError:
            self.abandon(operation)
            raise

    def say(self, key: str, payload: Payload, operation: Operation | None = None) -> None:
        """Have the code state something under a key."""
        if self.is_guarded:
            self._check_call(asks=False)
        self._said[key, type_of(payload)] = (payload, operation)

    def state(self, key: str, payload: Payload, operation: Operation | None = None) -> None:
        """The same, also on behalf of code that can no longer speak for itself."""
        self._said[key, type_of(payload)] = (payload, operation)

    def abandon(self, operation: Operation) -> None:
        """The code no longer wants an answer."""
        if not self.evicted and not self.closing.over:
            self.give_up(operation)

    def give_up(self, operation: Operation) -> None:
        """Nothing waits for an operation any more. If it is not on record, it never was; if it may
        have to be undone, it goes on, and its outcome is recorded."""
        if self.open.get(operation.key) is not operation or operation.is_left:
            return
        if not operation.recorded:
            del self.open[operation.key]
            for said in [said for said in self._said if said[0] == operation.key]:
                del self._said[said]
            return
        if any(key == operation.key for key, _ in self._said):
            return  # a scope that has just ended: its end is about to be recorded
        operation.is_left = True
        operation.is_awaited = awaited = self.closing.awaits(operation)
        if not awaited:
            operation.cut_off(self)
        abandoned = OperationAbandoned(awaited=awaited, closing=self.closing.has_failed)
        self.state(operation.key, abandoned, operation)

    def _check_call(self, *, asks: bool) -> None:
        if self.evicted:
            raise Evicted
        self.closing.check_call(asks=asks)

    def life_of(self, operation: Operation) -> str:
        """The uid of the life in which something was first asked for: a run that is retried has
        what it was doing from an earlier one."""
        if operation.key in self._asked:
            uid, input = self._asked[operation.key]
            if operation.is_call_with(input):
                return uid
        for uid, last in self._lineage:
            if 0 < operation.asked_at <= last:
                return uid
        return self.uid

    def child_id(self, key: str) -> str:
        """The id of the child that this life asks for under `key`."""
        later = self.started is not None and self.started.later
        return child_id(self.run_id, key, self.uid if later else "")

    def is_own(self, uid: str) -> bool:
        """Whether `uid` is this life, or one of those that it goes on from when it is retried."""
        return uid == self.uid or any(uid == earlier for earlier, _ in self._lineage)

    @property
    def scope(self) -> Scope:
        """The scope of the task that is running."""
        return current_scope.get(self.loop.root)

    @property
    def replaying(self) -> bool:
        """Whether history still has something to say."""
        return self.past.remaining > 0

    def _record_statements(self) -> None:
        while self._said:
            (key, _), (payload, _) = next(iter(self._said.items()))
            event = to_event(payload, run_id=self.run_id, step_name=key, timestamp=self.now)
            self.draft.events.append(event)
            del self._said[key, event.type]
            operation = self.open.get(key)
            self._settle(key, event, payload)
            if operation is not None:
                operation.enact(self, payload)

    # -- what became of it --------------------------------------------------------------------

    @property
    def main(self) -> asyncio.Task[Any] | None:
        """The task whose end is the end of the run, once the run has begun."""
        return self._main

    @property
    def is_going_on(self) -> bool:
        """Whether its code runs, is being closed, or what it did is being undone."""
        main = self._main
        return main is not None and not (main.done() and self.closing.over)

    @property
    def ends_with(self) -> BaseException | None:
        """The error with which the code has ended, if that is how."""
        main = self._main
        if main is None or not main.done() or main.cancelled():
            return None
        return main.exception()

    @property
    def ended(self) -> bool:
        """Whether history has recorded the end of the run already."""
        return self._ended

    @property
    def is_thrown_out(self) -> bool:
        """Whether nothing that the code asks for counts any more."""
        return self.evicted or self.closing.over

    def eviction(self) -> BaseException:
        """What outlast calls raise in code that is being thrown out."""
        return Evicted() if self.evicted else RunEnding(self.run_id)

    def evict(self) -> None:
        """Throw the code out of memory. Its ``finally`` blocks run, but outlast calls in them
        raise and record nothing."""
        if not self.evicted:
            self.evicted = self.is_guarded = True
            self.loop.close_tasks()

    def _mismatch(self, event: Event) -> Mismatch:
        asked = ", ".join(f"{type} {key!r}" for key, type in self._said) or "nothing more"
        return Mismatch(
            self.run_id,
            recorded=f"{event.sequence} {event.type} {event.step_name!r}",
            asked=asked,
            at=", ".join(self.loop.places()),
        )


class _WorkflowLoop(RunLoop):
    """A run's loop that knows its execution, so that outlast calls find it."""

    def __init__(self, execution: Execution) -> None:
        super().__init__()
        self.execution = execution

    def start_timer(self, seconds: float, fire: Callable[[], None]) -> Callable[[], None]:
        return start_timer(self.execution, seconds, fire)


def current_execution() -> Execution | None:
    """The execution whose workflow code is calling, or None outside workflow code."""
    loop: object = running_loop()
    return loop.execution if isinstance(loop, _WorkflowLoop) else None


class PendingCommit(Struct):
    """Gathered while the code runs, sealed into one commit, and then begun anew."""

    events: list[Event] = []
    consumes: list[int] = []
    starts: list[Start] = []
    sends: list[Send] = []
    tasks: list[Task] = []
    drops: list[str] = []
    facts: list[Fact] = []
    published: dict[str, Raw] = {}
    attributes: dict[str, Attribute] = {}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.events or self.consumes or self.sends or self.published or self.attributes)
