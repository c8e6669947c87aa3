"""TaskWorker: executes queued steps for runs that any process drives.

::

    queue ── take (leases, deliveries counted) ▶ step ──▶ send(report, finishes=[claim])
                        ▲                        │            atomic: the task is removed
                        └── renew, every third ◀─┘            and the run has its outcome

A worker whose lease is lost or in doubt cancels the step: another worker may have the task. An outcome is kept, and
reported until the store answers that another worker has the task. A worker that stops reports that, and the attempt
does not count.

TaskPoller: when to poll queues for tasks: at a wake-up, when a task becomes ready, and from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from msgspec import Raw

from outlast.engine.definitions.definition import StepDefinition
from outlast.engine.definitions.retry import MAX_INTERRUPTIONS
from outlast.engine.operations.step import (
    LeaseLossReport,
    StepReport,
    error_failure,
    interruption_failure,
    queue_of,
    stop_failure,
)
from outlast.engine.runner.driver_pool import Drain
from outlast.engine.runner.group_commit import AGAIN
from outlast.engine.runner.leases import Lease, LeaseLossReporter, Leases
from outlast.engine.runner.poll_loop import NextPoll, PollLoop
from outlast.engine.steps.step_executor import Outcome, StepContext, StepExecutor, self_cancelled
from outlast.errors import Busy, Fenced, OutlastError, StoreFault, TryAgain, Unsupported
from outlast.model.commit_rules import WakeupKind
from outlast.model.json import to_json
from outlast.model.payloads import StepFailedEvent
from outlast.model.query import MAX_LIMIT
from outlast.model.run_contents import Delivery, Item, ItemKind, Receipt, Send, Task
from outlast.ports.clock import Backoff
from outlast.ports.codec import Codec
from outlast.ports.queue import Queue
from outlast.ports.store import Store
from outlast.worker.result_batcher import ResultBatcher

STEPS_AT_ONCE = 100
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
IN_THREAD = "a step in a thread"
log = logging.getLogger("outlast.worker")


class TaskWorker:
    """Executes the queued steps whose code it has, several at once. Its process renews `leases` (of `lease` seconds) while
    it is open."""

    def __init__(
        self,
        store: Store,
        steps: Iterable[StepDefinition],
        *,
        codec: Codec,
        owner: str,
        lease: float,
        leases: Leases,
        lease_losses: LeaseLossReporter,
        concurrency: int = STEPS_AT_ONCE,
        threads: Executor | None = None,
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._steps = {queue_of(step.queue, step.name): step for step in steps if step.queue}
        self._codec = codec
        self._owner = owner
        self._lease = lease
        # A call that takes longer would outlast the lease that it works under.
        self._timeout_s = lease / 3
        self._concurrency = concurrency
        self._executor = StepExecutor(
            codec, store.clock, grace=lease / 4, threads=threads, inherited_files=store.inherited_files
        )  # fmt: skip
        self._leases = leases
        self._lease_losses = lease_losses
        self._reports = ResultBatcher(store, timeout_s=self._timeout_s)
        self._working: dict[asyncio.Task[None], Lease] = {}
        self._reporting: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._is_open = self._stopping = False
        self._poll_loop = PollLoop(store, "taking tasks", timeout_s=self._timeout_s, log=log)

    async def open(self) -> None:
        """Start to take tasks."""
        if self._steps and not self._poll_loop.is_running:
            self._queue = self._store.queue()
            await self._queue.open()
            TaskPoller(
                self._poll_loop,
                self._queue,
                list(self._steps),
                self._take_some,
                timeout_s=self._timeout_s,
            ).start()
            self._is_open = True

    async def drain(self, limit: Drain) -> None:
        """Take no more tasks, and let running steps end."""
        await self._poll_loop.stop()
        if self._working:
            await limit.wait_for(self._done())

    async def _done(self) -> None:
        while self._working:
            await asyncio.wait(list(self._working))

    async def close(self) -> None:
        """Stop: running steps are cut off, and that is reported to their runs."""
        was_open, self._is_open = self._is_open, False
        await self._poll_loop.stop()
        self._stopping = True
        threads = [task for task in self._working if task.get_name() == IN_THREAD]
        if threads:
            # They cannot be cancelled: another process would execute the same step beside them.
            await asyncio.wait(threads, timeout=self._executor.grace)
        working = list(self._working)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        self._stopping = False
        if was_open:
            await self._queue.close()

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it takes tasks of."""
        return tuple(sorted(self._steps))

    @property
    def doing(self) -> int:
        """How many tasks it has now."""
        return len(self._working)

    # -- taking -------------------------------------------------------------------------------

    async def _take_some(self) -> bool:
        """Take as many tasks as there is room for; whether it got any. None is taken while a report waits under a lease
        that is not renewed: it could be that same task, whose step has ended."""
        while any(self._leases.is_late(self._working[one]) for one in self._reporting):
            await self._clock.sleep(FIRST_PAUSE_S)
        while (room := self._concurrency - len(self._working)) <= 0:
            self._room.clear()
            await self._room.wait()
        asked = self._clock.monotonic()
        found = await self._poll_loop.take(
            lambda: self._queue.take_many(
                self._steps,
                owner=self._owner,
                visibility=self._lease,
                limit=min(room, MAX_LIMIT),
                timeout=self._timeout_s,
            ),
            self._give_back,
        )
        for delivery in found:
            step = self._steps[delivery.task.queue]
            name = IN_THREAD if step.in_thread else None
            working = asyncio.create_task(self._work(step, delivery), name=name)
            lost = partial(self._lose, working, delivery)
            # A step in a thread cannot be cancelled: its end is awaited and reported.
            doubted = (lambda: None) if step.in_thread else lost
            self._working[working] = self._leases.hold(
                delivery.claim, asked=asked, lost=lost, doubted=doubted
            )
            working.add_done_callback(self._over)
        return bool(found)

    def _lose(self, working: asyncio.Task[None], delivery: Delivery) -> None:
        if working in self._reporting:
            return  # the store decides
        self._leases.drop(self._working[working])
        working.cancel("its lease was lost")
        task = delivery.task
        report = LeaseLossReport(life=task.uid, attempts={task.step: _attempt_of(task)})
        self._lease_losses.report(delivery.claim, report)

    async def _give_back(self, found: Sequence[Delivery]) -> None:
        """Report that these steps have not started: their runs queue them again, and the attempts do not count."""
        reporting = []
        for delivery in found:
            task = delivery.task
            failed = _given_up(self._steps[task.queue], task) or stop_failure(
                _attempt_of(task), self._clock.now()
            )
            reporting.append(self._report_in_time(delivery, _report_of(task, failed=failed)))
        await asyncio.gather(*reporting)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._leases.drop(self._working.pop(task))
        self._room.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("a task is dropped, and delivered again later: %r", task.exception())

    # -- working ------------------------------------------------------------------------------

    async def _work(self, step: StepDefinition, delivery: Delivery) -> None:
        task = delivery.task
        attempt = _attempt_of(task)
        given_up = _given_up(step, task)
        if given_up is not None:
            await self._report(delivery, _report_of(task, failed=given_up))
            return
        latest = _Progress()
        try:
            outcome = await self._attempt(step, task, attempt, latest)
        except asyncio.CancelledError:
            if self._stopping and (latest.was_never_called or not step.at_most_once):
                stopped = stop_failure(attempt, self._clock.now())
                report = _report_of(task, failed=stopped, progress=latest.details)
                await self._report_in_time(delivery, report)
            if self._is_cut_off():
                raise
            # The step cancelled itself, and would do so again at the next delivery.
            outcome = Outcome(None, self_cancelled(step), 0)
        finally:
            latest.over()
        failed = self._failed(step, task, attempt, outcome)
        report = _report_of(
            task,
            output=outcome.output,
            failed=failed,
            progress=None if failed is None else latest.details,
            duration_ns=outcome.duration_ns,
        )
        await self._report(delivery, report)

    async def _attempt(
        self, step: StepDefinition, task: Task, attempt: int, latest: _Progress
    ) -> Outcome:
        loop = asyncio.get_running_loop()

        def report(details: Raw) -> None:
            latest.details = details
            # A plain step runs in a thread, and may outlive its attempt there.
            loop.call_soon_threadsafe(latest.send, self._send_progress, task)

        progress = task.metadata.get("progress")
        context = StepContext(
            run_id=task.run_id,
            uid=task.uid,
            life=task.metadata.get("life", ""),
            key=task.step,
            attempt=attempt,
            progress=None if progress is None else Raw(progress.encode()),
            report=report,
            codec=self._codec,
            lease_held=self._is_held,
            on_never_called=latest.never_called,
        )
        try:
            args, kwargs = step.signature.decode_call(self._codec, task.input or Raw(b"{}"))
        except OutlastError as misfit:
            return Outcome(None, misfit, 0)
        return await self._executor.attempt(step, context, args, kwargs)

    def _is_cut_off(self) -> bool:
        """Whether the cancellation came from outside the step: the worker stops, the lease was lost, or the whole loop
        ends."""
        task = asyncio.current_task()
        assert task is not None
        if (
            self._stopping
            or self._poll_loop.is_cancelled
            or not self._leases.keeps(self._working[task])
        ):
            return True
        while task.uncancel():
            pass
        return False

    def _is_held(self) -> bool:
        task = asyncio.current_task()
        return task is not None and self._leases.is_held(self._working[task])

    def _failed(
        self, step: StepDefinition, task: Task, attempt: int, outcome: Outcome
    ) -> StepFailedEvent | None:
        if outcome.error is None:
            return None
        failures = int(task.metadata.get("failures", "0"))
        now = self._clock.now()
        return error_failure(step, outcome.error, attempt, failures, now, self._codec)

    # -- reporting ----------------------------------------------------------------------------

    async def _report(self, delivery: Delivery, report: StepReport) -> None:
        """Send the outcome and remove the task atomically; retried until that has succeeded or another worker has the
        task."""
        task, backoff = delivery.task, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        send = _to_run(task, report, id=f"{task.id} {delivery.claim.token}")
        working = asyncio.current_task()
        if working in self._working:
            self._reporting.add(working)
        try:
            while True:
                try:
                    receipt = await self._reports.send(send, delivery.claim)
                except Fenced:
                    return  # reported already, or another worker has the task now
                except AGAIN as error:
                    log.warning("the report of task %s is sent again: %s", task.id, error)
                else:
                    if isinstance(receipt, Receipt):
                        return
                    if not isinstance(receipt, Busy):
                        # The run has ended or was started again.
                        log.info("no run waits for task %s any more: %s", task.id, receipt)
                        return
                await backoff.wait(self._clock)
        finally:
            self._reporting.discard(working)

    async def _report_in_time(self, delivery: Delivery, report: StepReport) -> None:
        """As `_report`, within a timeout: a task that cannot be reported is delivered again when its lease expires."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._report(delivery, report)
        except (TryAgain, StoreFault, TimeoutError) as error:
            log.warning("the stop of task %s was not reported: %r", delivery.task.id, error)

    async def _send_progress(self, task: Task, details: Raw) -> None:
        report = _report_of(task, progress=details)
        try:
            await self._store.send([_to_run(task, report)], timeout=self._timeout_s)
        except (TryAgain, StoreFault) as error:
            log.warning("a report of %s was lost: %s", task.step, error)


class _Progress:
    """The latest progress of a step, and the report in flight. One at a time: a newer report replaces the one that
    waits."""

    def __init__(self) -> None:
        self.details: Raw | None = None
        self.was_never_called = False
        """Whether the attempt was cancelled before its function was called."""
        self._sending: asyncio.Task[None] | None = None
        self._is_over = False

    def send(self, send: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Send the latest report, unless one is in flight or the attempt has ended."""
        if not self._is_over and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(send(*args, self.details))

    def never_called(self) -> None:
        """The attempt is cancelled, and its function was not called."""
        self.was_never_called = True

    def over(self) -> None:
        """The attempt has ended: its outcome is reported next, with the progress."""
        self._is_over = True
        if self._sending is not None:
            self._sending.cancel()


def _attempt_of(task: Task) -> int:
    return int(task.metadata.get("attempt", "1"))


def _report_of(task: Task, **said: Any) -> StepReport:
    """A report of the attempt that a task stands for."""
    return StepReport(life=task.metadata.get("life", ""), attempt=_attempt_of(task), **said)


def _given_up(step: StepDefinition, task: Task) -> StepFailedEvent | None:
    """The failure of a task whose workers crashed, if it is not to be tried again."""
    deaths = task.attempt - 1
    if deaths >= MAX_INTERRUPTIONS or (deaths and step.at_most_once):
        return interruption_failure(_attempt_of(task), deaths)
    return None


def _to_run(task: Task, report: StepReport, *, id: str | None = None) -> Send:
    item = Item(kind=ItemKind.STEP, name=task.step, data=Raw(to_json(report)), sender=task.id)
    if id is not None:
        item = Item(kind=ItemKind.STEP, name=task.step, id=id, data=item.data, sender=task.id)
    return Send(run_id=task.run_id, uid=task.uid, item=item)


SHORTEST_PAUSE_S = 0.01


class TaskPoller:
    """Calls `take`, which takes tasks of the queues in `names` and returns whether it got any, until it gets none;
    then it waits until there may be more or, if this process `is_full`, until there is room again."""

    def __init__(
        self,
        loop: PollLoop,
        queue: Queue,
        names: Sequence[str],
        take: Callable[[], Awaitable[bool]],
        *,
        timeout_s: float,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = loop
        self._queue = queue
        self._names = names
        self._take = take
        self._timeout_s = timeout_s
        self._is_full = is_full

    def start(self) -> None:
        """Start to poll, until the loop is stopped."""
        self._loop.start(self._poll)

    async def _poll(self) -> NextPoll | None:
        if await self._take():
            return None
        # There is no wake-up when a delayed task becomes ready, a lease expires or a rate allows more.
        due = await self._queue.next_ready_at(self._names, timeout=self._timeout_s)
        pause_s = self._loop.pause_until(due, shortest_s=SHORTEST_PAUSE_S)
        # Where there is a policy, or was no room, any end of a run or a task may let another one start.
        waits_for_any = self._is_full() or await self._has_policies()
        return NextPoll(pause_s, WakeupKind.ANY if waits_for_any else WakeupKind.TASKS)

    async def _has_policies(self) -> bool:
        try:
            return bool(await self._queue.policies(timeout=self._timeout_s))
        except Unsupported:
            return False
