"""Engine: claims runs that can go on, drives them, and starts what their workflows ask for.

One turn of a run::

    outcomes that have arrived ──▶ execution (code runs) ──▶ ONE commit ──▶ durable
                 ▲                                                            │
                 └────────────── bodies of steps run ◀── only now ────────────┘

A run that waits for a timer alone is parked with that commit and leaves memory; the store hands it
out again when its time has come. A run whose engine dies is handed out when its lease ends, and
the attempt that was under way is counted and made again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from outlast.engine.definition import WorkflowDefinition
from outlast.engine.execution import Execution
from outlast.engine.journal import Journal
from outlast.engine.operations import StepCall, TimerWait
from outlast.engine.turn import next_commit, next_wake
from outlast.errors import Fenced, Mismatch, RunClosed, RunExists, RunFailed, WorkflowMisuse
from outlast.model.claim import Claim, ClaimedRun, Hold
from outlast.model.commit import Commit
from outlast.model.ids import check_id, new_id
from outlast.model.payloads import StepCompleted, StepFailed, TimerFired, WorkflowStarted
from outlast.model.run import Change, Run, Status
from outlast.model.times import NOW
from outlast.ports.codec import Codec
from outlast.ports.store import Store

LEASE_SECONDS = 30.0
IDLE_SECONDS = 1.0
CLAIM_AT_ONCE = 100


class Engine:
    """Runs workflows in this process on any store."""

    def __init__(
        self,
        store: Store,
        workflows: list[WorkflowDefinition],
        *,
        codec: Codec,
        owner: str = "engine",
        lease: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._journal = Journal(store)
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._codec = codec
        # A process that was restarted under the same name must not be taken for the old one.
        self._owner = f"{owner}-{new_id()}"
        self._lease = lease
        self._driving: dict[str, asyncio.Task[None]] = {}

    async def start(
        self, workflow: WorkflowDefinition, *args: Any, id: str | None = None, **kwargs: Any
    ) -> str:
        """Begin a run and return its id; with an id that is taken, attach to that run."""
        if workflow.name not in self._workflows:
            raise WorkflowMisuse(f"workflow {workflow.name!r} is not registered with this engine")
        run_id = check_id(id) if id is not None else new_id()
        input, _, _ = workflow.signature.encode_call(self._codec, args, kwargs)
        run = Run(
            id=run_id,
            workflow=workflow.name,
            version=workflow.version,
            input=input,
            status=Status.RUNNING,
            runnable_at=NOW,
        )
        execution = Execution(workflow, run_id, self._codec)
        started = WorkflowStarted(
            workflow_name=workflow.name, version=workflow.version, input=input
        )
        execution.deliver(started, self._clock.now())
        first = self._first_commit(execution, run)
        try:
            committed = await self._journal.commit(first)
        except RunExists:
            execution.evict()
            return run_id
        claim = Claim(
            owner=self._owner,
            token=committed.token,
            claimed_at=self._clock.now(),
            run_id=run_id,
            uid=run.uid,
        )
        self._drive(execution, claim, committed.sequence)
        return run_id

    async def result(self, run_id: str) -> Any:
        """Wait for a run to end and give its result; `RunFailed` if it failed."""
        while True:
            rings = self._store.notifier.rings
            run = await self._store.get(run_id)
            if run.status.terminal:
                if run.status is not Status.COMPLETED or run.result is None:
                    raise RunFailed(run_id, run.status, run.error or "no result")
                signature = self._workflows[run.workflow].signature
                return signature.decode_result(self._codec, run.result)
            await self.claim()
            await self._store.notifier.wait(self._clock, IDLE_SECONDS, since=rings)

    async def claim(self) -> int:
        """Take over what is runnable and whose code is here; how many runs."""
        claimed = await self._store.claim_runs(
            self._owner, self._lease, limit=CLAIM_AT_ONCE, workflows=self._workflows
        )
        for one in claimed:
            await self._resume(one)
        return len(claimed)

    async def settled(self) -> None:
        """Return when no run is being driven here any more."""
        while self._driving:
            await asyncio.wait(self._driving.values())

    # -- a run --------------------------------------------------------------------------------

    def _first_commit(self, execution: Execution, run: Run) -> Commit:
        """The start, the first intents and the claim in one write."""
        claim = Claim(owner=self._owner, token=0, claimed_at=execution.now, run_id=run.id)
        ordinary = next_commit(execution, execution.seal(), claim, 0)
        return msgspec.structs.replace(
            ordinary,
            uid=None,
            token=None,
            create=run,
            hold=Hold(self._owner, self._lease),
        )

    async def _resume(self, claimed: ClaimedRun) -> None:
        run, claim = claimed.run, claimed.claim
        history = await self._store.history(run.id)
        execution = Execution(self._workflows[run.workflow], run.id, self._codec)
        execution.last_started = run.current_step
        try:
            execution.replay(history)
        except Mismatch as mismatch:
            execution.evict()
            await self._park(claim, run.sequence, mismatch)
            return
        self._settle_attempts(execution)
        self._fire_timers(execution)
        self._drive(execution, claim, run.sequence)

    async def _park(self, claim: Claim, sequence: int, mismatch: Mismatch) -> None:
        await self._journal.commit(
            Commit(
                run_id=claim.run_id,
                uid=claim.uid,
                token=claim.token,
                expected=sequence,
                change=Change(status=Status.HALTED, error=str(mismatch), runnable_at=None),
                release=True,
            )
        )

    def _settle_attempts(self, execution: Execution) -> None:
        """What was under way when the last owner died: count it, and try again or give up."""
        for call in [op for op in execution.open.values() if isinstance(op, StepCall)]:
            if call.attempt == 0 or execution.is_fresh(call):
                continue
            if call.attempt < call.step.attempts + 1:
                execution.try_again(call)
            else:
                failed = StepFailed(
                    error="the process died while it ran", attempt=call.attempt, will_retry=False
                )
                execution.deliver(failed, self._clock.now(), key=call.key)

    def _fire_timers(self, execution: Execution) -> None:
        now = self._clock.now()
        due = [op for op in execution.open.values() if isinstance(op, TimerWait)]
        for timer in sorted(due, key=lambda timer: timer.fire_at):
            if timer.fire_at <= now and timer.key in execution.open and not timer.cancelled:
                execution.deliver(TimerFired(), now, key=timer.key)

    def _drive(self, execution: Execution, claim: Claim, sequence: int) -> None:
        task = asyncio.create_task(self._turns(execution, claim, sequence))
        self._driving[claim.run_id] = task
        task.add_done_callback(lambda _: self._driving.pop(claim.run_id, None))

    async def _turns(self, execution: Execution, claim: Claim, sequence: int) -> None:
        """Turn after turn until the run ends, rests, or belongs to somebody else."""
        bodies: dict[str, asyncio.Task[None]] = {}
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        try:
            while True:
                events = execution.seal()
                if events:
                    commit = next_commit(execution, events, claim, sequence)
                    committed = await self._journal.commit(commit)
                    sequence = committed.sequence
                    if execution.outcome() is not None or (
                        commit.release and not committed.still_runnable
                    ):
                        return
                for operation in execution.open.values():
                    if isinstance(operation, StepCall) and operation.key not in bodies:
                        body = self._run_body(operation, arrived)
                        bodies[operation.key] = asyncio.create_task(body)
                await self._next_arrivals(execution, arrived, bodies)
        except (Fenced, RunClosed):
            return
        finally:
            for task in bodies.values():
                task.cancel()
            execution.evict()

    async def _next_arrivals(
        self,
        execution: Execution,
        arrived: asyncio.Queue[Any],
        bodies: dict[str, asyncio.Task[None]],
    ) -> None:
        wake = next_wake(execution)
        getting = asyncio.ensure_future(arrived.get())
        waits: set[asyncio.Future[Any]] = {getting}
        if wake is not None:
            pause = max((wake - self._clock.now()).total_seconds(), 0.0)
            waits.add(asyncio.ensure_future(self._clock.sleep(pause)))
        done, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for future in rest:
            future.cancel()
        self._fire_timers(execution)
        if getting in done:
            found = [getting.result()]
            while not arrived.empty():
                found.append(arrived.get_nowait())
            for key, payload, output in found:
                del bodies[key]
                if key in execution.open:
                    execution.deliver(payload, self._clock.now(), key=key, output=output)

    async def _run_body(self, call: StepCall, arrived: asyncio.Queue[Any]) -> None:
        began = self._clock.monotonic()
        output = None
        payload: StepCompleted | StepFailed
        try:
            if call.step.is_async:
                value = await call.step.function(*call.args, **call.kwargs)
            else:
                value = await asyncio.to_thread(call.step.function, *call.args, **call.kwargs)
            output = call.step.signature.encode_result(self._codec, value)
            nanoseconds = int((self._clock.monotonic() - began) * 1e9)
            payload = StepCompleted(duration_ns=nanoseconds)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            payload = StepFailed(error=text, attempt=call.attempt, will_retry=False)
        arrived.put_nowait((call.key, payload, output))
