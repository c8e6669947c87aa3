"""App: a store, workflows, and an engine that runs them here. Where everything is put together."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from outlast._public import public
from outlast.call import Call
from outlast.client import Client, RunHandle, TransactionClient
from outlast.client.backend import Backend
from outlast.client.client import StartOptions
from outlast.codecs import JsonCodec
from outlast.decorators import Step, Workflow, queued_steps_in, with_children, workflows_in
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.definitions.retry import check_park_on, is_number
from outlast.engine.replay.commit_builder import NewRun
from outlast.engine.replay.replay_log import DEFAULT_RESIDENCY, ResidencyPolicy
from outlast.engine.runner.driver_pool import EMBEDDED_DRAIN_S, Drain
from outlast.engine.runner.engine import LEASE_S, MAX_RUNS, Engine
from outlast.engine.runner.group_commit import Observer
from outlast.engine.runner.stuck_runs import MAX_REPORTED
from outlast.engine.steps.subprocess import loading
from outlast.errors import Closed, InvalidValue, OutlastError, WorkflowMisuse
from outlast.model.claim import Worker, check_ttl
from outlast.model.ids import SCHEDULE_OF
from outlast.model.queue_policy import STARTS, QueueOptions, QueuePolicy, check_policy
from outlast.model.run import AttributeValue, Run
from outlast.model.times import to_seconds
from outlast.ports.clock import Clock, LeapingClock
from outlast.ports.codec import Codec
from outlast.ports.notifier import WakeupChannel
from outlast.ports.store import Store
from outlast.ports.store_methods import LOCK_PATIENCE_S
from outlast.schedules import Schedule
from outlast.schedules.schedule_workflow import schedule_workflow
from outlast.urls import resolve_wakeup_channel, store_of
from outlast.worker import STEPS_AT_ONCE, AdmissionWorker, TaskWorker, WakeupRelay
from outlast.worker.heartbeat import Heartbeat

R = TypeVar("R")


@public
class App:
    """Runs workflows in this process, durably, on the store you name.

    ``App("sqlite:///shop.db", workflows=[checkout])``. A store that you made yourself is used and
    never closed by the app. Runs that were left unfinished go on as soon as the app opens.
    `steps` are those with a queue that this process does, for runs that are driven anywhere.
    A `wakeup_channel` (``sqs://wakeups?region=…``, or one that you made for this app alone) tells workers on
    the same store of work, and this one of theirs, so that they need not look so often.
    `observers` are called with each commit of this process when it is durable. `queues` are those
    from which this process lets runs begin, by name or with their rules. `concurrency` is how many
    runs this process drives, and how many queued steps it does, at once (1,000 and 100).
    `schedules` start workflows by the clock; they are kept in the store, see `app.client.schedules`.
    `threads` is where plain steps run, if not in threads of the app's own; it is never shut down.
    `residency` says when histories are summed up in snapshots: tests let it happen more often.
    `strict_replay`: a run whose code calls a step with other arguments in a replay is parked, not only logged.
    `park_on`: errors of workflow code that park its run instead of failing it; by default programming errors
    (NameError, AttributeError, TypeError, LookupError, KeyError, IndexError, AssertionError, ImportError). ``()``: none.
    `drain` is how many seconds steps that run get to end in when the app is closed.

    An app has a `client`: `start`, `start_many`, `get` and `on` are here as well, everything else about runs, queues and
    schedules is on ``app.client`` and on the handles of runs.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        workflows: Iterable[Workflow[..., Any]] = (),
        steps: Iterable[Step[..., Any]] = (),
        codec: Codec | None = None,
        clock: Clock | None = None,
        name: str = "app",
        lease: float | timedelta = LEASE_S,
        observers: Iterable[Observer] = (),
        queues: Iterable[str | QueuePolicy] = (),
        concurrency: int | None = None,
        wakeup_channel: str | WakeupChannel | None = None,
        schedules: Iterable[Schedule] = (),
        threads: Executor | None = None,
        residency: ResidencyPolicy = DEFAULT_RESIDENCY,
        strict_replay: bool = False,
        park_on: tuple[type[Exception], ...] | None = None,
        drain: float | timedelta = EMBEDDED_DRAIN_S,
    ) -> None:
        lease, drain = to_seconds(lease), to_seconds(drain)
        check_ttl(lease or 0)
        check_park_on(park_on)
        if not is_number(drain) or not 0 <= drain < math.inf:
            raise InvalidValue(f"drain={drain!r}: use a number of seconds, 0 to wait for nothing")
        self.drain = drain
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._draining: Drain | None = None
        if concurrency is not None and concurrency < 1:
            raise InvalidValue(
                f"concurrency={concurrency}: a process that takes nothing on is of no use. Use 1 or "
                "more, or leave workflows and steps out"
            )
        channel = (
            resolve_wakeup_channel(wakeup_channel)
            if isinstance(wakeup_channel, str)
            else wakeup_channel
        )
        self._owns_store = isinstance(store, str)
        self._opened = opened = store_of(store, clock=clock)
        if isinstance(opened.clock, LeapingClock):
            self._opened = opened = opened.clock.watched(opened)
        declared = list(schedules)
        given = workflows_in(workflows)
        given += {one.workflow: None for one in declared if one.workflow not in given}
        definitions = with_children(given)
        codec = codec or JsonCodec()
        self._backend = self._new_backend(opened, codec)
        self.client: Client = _AppClient(self._backend)
        schedule_workflows = {
            one.name: schedule_workflow(one, self._backend, opened).definition
            for one in definitions
        }
        definitions += schedule_workflows.values()
        self._engine = Engine(
            opened,
            definitions,
            codec=codec,
            owner=name,
            lease=lease,
            concurrency=concurrency or MAX_RUNS,
            observers=observers,
            threads=threads,
            residency=residency,
            strict_replay=strict_replay,
            park_on=park_on,
        )
        self._worker = TaskWorker(
            opened,
            queued_steps_in(steps),
            codec=codec,
            owner=self._engine.owner,
            lease=lease,
            leases=self._engine.leases,
            lease_losses=self._engine.lease_losses,
            concurrency=concurrency or STEPS_AT_ONCE,
            threads=threads,
        )
        named = list(queues)
        self._ruled = [one for one in named if isinstance(one, QueuePolicy)]
        self._policies = [QueuePolicy(queue=one) if isinstance(one, str) else one for one in named]
        for policy in self._policies:
            check_policy(policy)
        self._doorman = AdmissionWorker(
            opened,
            set(self.queue_names),
            self._engine.workflows,
            owner=self._engine.owner,
            lease=lease,
            room=lambda: self._engine.claimer.room,
            named=bool(self._policies),
        )
        self._engine.claimer.on_ticket = self._doorman.want
        self._presence = Heartbeat(
            opened, self._word, on_listed=self._engine.claimer.look_for_parked
        )
        self._relay = None if channel is None else WakeupRelay(opened, channel, timeout_s=lease / 3)
        self._backend.attach(self._engine, self._doorman)
        self._declared = declared
        for schedule in declared:
            schedule.spec(codec)  # checks its input

    def _new_backend(self, store: Store, codec: Codec) -> AppBackend:
        return AppBackend(store, codec, self.check_loop)

    @property
    def store(self) -> Store:
        """The store that this app runs on."""
        return self._backend.store

    @property
    def workflow_names(self) -> frozenset[str]:
        """The names of the workflows whose code is here."""
        return frozenset(n for n in self._engine.workflows if not n.startswith(SCHEDULE_OF))

    @property
    def queue_names(self) -> frozenset[str]:
        """The queues from which this process lets runs begin."""
        return frozenset({STARTS, *(policy.queue for policy in self._policies)})

    @property
    def troubles(self) -> dict[str, str]:
        """Runs that are stuck in this process, and why: for your metrics. It is empty unless something is
        broken; `outlast why` and `outlast doctor` show it, and the log has said it."""
        return self._engine.watchdog.troubles

    @property
    def claim_error(self) -> BaseException | None:
        """Why the last look for runs to go on with has failed, or None: this process takes up no runs as long
        as it is there. Most such errors pass, and the log has them."""
        return self._engine.claimer.error

    def definition(self, name: str) -> WorkflowDefinition | None:
        """The workflow of that name as it runs here, if its code is here."""
        return self._engine.workflows.get(name)

    async def open(self) -> None:
        """Open the store and go on with what is unfinished. If a part cannot be opened, none
        stays open."""
        try:
            await self._open()
        except BaseException:
            with suppress(OutlastError):  # why it could not be opened is what matters
                await self.close()
            raise

    async def _open(self) -> None:
        if loading:
            raise WorkflowMisuse(
                f"{loading[0]} is loaded to do a step in a process of its own, and started its program again: "
                'put what begins it under `if __name__ == "__main__":`'
            )
        self._check_process()
        self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
        if self._owns_store:
            await self._opened.open()
        if self._engine.claimer.only is not None:
            await self._engine.open()
            return
        for schedule in self._declared:
            await self.client.schedules.declare(schedule)
        if self._relay is not None:
            await self._relay.open()
        await self._engine.open()
        await self._worker.open()
        await self._declare()
        await self._doorman.open()
        if self._engine.workflows or self._worker.queues:
            await self._presence.open()

    def execute_only(self, run_id: str) -> None:
        """Before `open`: execute this run and its descendants, and nothing else that waits in the store."""
        self._engine.claimer.only = run_id

    async def close(self) -> None:
        """Stop: nothing more begins, and steps that run get `drain` seconds to end. What is left then
        is handed back and goes on wherever it is claimed next. In a forked child nothing stops: it
        goes on in the parent."""
        if self._is_inherited:
            if self._owns_store:
                await self._opened.close()
            return
        async with AsyncExitStack() as last_first:  # a part that fails leaves no other open
            if self._owns_store:
                last_first.push_async_callback(self._opened.close)
            if self._relay is not None:
                last_first.push_async_callback(self._relay.close)
            last_first.push_async_callback(self._stop)
        self._loop = None

    def hurry(self) -> None:
        """Cut the drain of a `close` short: what still runs is handed back now."""
        self.drain = 0
        if self._draining is not None:
            self._draining.hurry()

    @property
    def _is_inherited(self) -> bool:
        """Whether it was opened by the process that has forked this one."""
        return self._loop is not None and self._pid != os.getpid()

    def _check_process(self) -> None:
        if self._is_inherited:
            raise Closed(
                "this app was opened before this process was forked, and what it does goes on in the "
                "parent: make and open apps after the fork, not before"
            )

    def check_loop(self) -> None:
        """What an app has in memory belongs to one loop, and to its thread."""
        self._check_process()
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            return  # nothing is awaited yet
        if self._loop not in (None, here):
            raise Closed(
                "this app is open on another event loop, and works there alone. Call it from that one "
                "(asyncio.run_coroutine_threadsafe), or use outlast.sync.App, which any thread may call"
            )

    async def _stop(self) -> None:
        """All at once: where the store does not answer, each of them waits for that."""
        self._draining = limit = Drain(self._opened.clock, self.drain)
        await _all(self._doorman.close(), self._worker.drain(limit), self._engine.drain(limit))
        await _all(self._presence.close(), self._worker.close(), self._engine.close())

    async def _declare(self) -> None:
        if self._ruled:
            async with self._opened.queue() as queue:
                for policy in self._ruled:
                    await queue.declare_policy(policy)

    def _word(self) -> Worker:
        """What this process says of itself to those who ask who works on the store."""
        return Worker(
            owner=self._engine.owner,
            code=self._engine.rejections.code,
            workflows=tuple(sorted(self.workflow_names)),
            queues=self._worker.queues,
            runs=len(self._engine.drivers),
            tasks=self._worker.doing,
            troubles=dict(list(self.troubles.items())[:MAX_REPORTED]),
        )

    async def __aenter__(self) -> Self:
        if self._loop is asyncio.get_running_loop():
            raise InvalidValue(
                "this app is open already: the end of this block would close it for the code that has "
                "opened it. Use it as it is"
            )
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @overload
    async def start(
        self, call: Call[R], *, here: bool = True, **options: Unpack[StartOptions]
    ) -> RunHandle[R]: ...
    @overload
    async def start(
        self,
        call: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        here: bool = True,
        **options: Unpack[StartOptions],
    ) -> RunHandle[Any]: ...
    async def start(
        self,
        call: Call[Any] | str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        here: bool = True,
        **options: Unpack[StartOptions],
    ) -> RunHandle[Any]:
        """Start a run: ``app.start(order("Momo"), id="order-1")``. See `Client.start` for its options.

        The run starts in this process at once. With ``here=False``, or in a queue, any worker that has
        the code runs it: a web server starts it, a worker runs it.
        """
        request = self.client.request(call, args, kwargs)
        here = here and options.get("queue") is None
        if here and not self._engine.claimer.is_open:
            raise Closed("this app is not open: use `async with outlast.App(…) as app:`")
        self.check_loop()
        if here and self._engine.workflows.get(request.workflow) is not request.definition:
            name = request.workflow
            raise WorkflowMisuse(
                f"workflow {name!r} is not registered: App(…, workflows=[{name}]), or "
                "start(…, here=False) if another process has it"
            )
        create = self._engine.start if here else self._backend.create
        return await self.client.start_run(request, create, **options)

    async def start_many(
        self,
        calls: Mapping[str, Call[R]] | Iterable[Call[R]],
        *,
        attributes: Mapping[str, AttributeValue] | None = None,
        queue: str | QueueOptions | Callable[[Call[R]], str | QueueOptions] | None = None,
    ) -> list[RunHandle[R]]:
        """Start many runs, hundreds in one commit, for any worker that has their code; see `Client.start_many`."""
        return await self.client.start_many(calls, attributes=attributes, queue=queue)

    def get(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere; see `Client.get`."""
        return self.client.get(run_id)

    def on(self, transaction: Any) -> TransactionClient:
        """This app's client inside a transaction of yours; see `Client.on`."""
        return self.client.on(transaction)


class _AppClient(Client):
    """The client of an app, which opens and closes the store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._owned = None


class AppBackend(Backend):
    """The backend of an app: its engine runs what is started here, and reads what is sent at once."""

    def __init__(self, store: Store, codec: Codec, check_loop: Callable[[], None]) -> None:
        super().__init__(store, codec)
        self._check_loop = check_loop
        self._engine: Engine | None = None
        self._admission: AdmissionWorker | None = None

    def attach(self, engine: Engine, admission: AdmissionWorker) -> None:
        """Use the engine: it is made later, with the workflows of schedules, which use this backend."""
        self._engine, self._admission = engine, admission
        self.workflows = engine.workflows

    @property
    def store(self) -> Store:
        store = super().store
        self._check_loop()
        return store

    def wake(self, run_id: str) -> None:
        if self._engine is not None:
            self._engine.drivers.wake(run_id)

    def drop(self, run_id: str) -> None:
        if self._engine is not None:
            self._engine.drivers.drop(run_id)

    def ending(self, run_id: str) -> asyncio.Future[Run | None] | None:
        return None if self._engine is None else self._engine.drivers.ending(run_id)

    def can_continue(self, run: Run) -> bool:
        return self._engine is not None and self._engine.can_continue(run)

    async def expect_queued(self) -> None:
        if self._admission is not None:
            await self._admission.want()

    async def create(self, new: NewRun) -> None:
        if self._engine is not None and self._engine.claimer.is_open:
            await self._engine.batcher.commit(new.commit(), patience=LOCK_PATIENCE_S)
        else:
            await super().create(new)


async def _all(*ends: Coroutine[Any, Any, None]) -> None:
    """Await all of them, also when one fails, and raise what the first of those has raised."""
    for end in await asyncio.gather(*ends, return_exceptions=True):
        if isinstance(end, BaseException):
            raise end
