"""Engine: starts runs, claims those that can go on, and keeps its claims alive.

A run whose engine dies is handed out by the store when its lease ends, and the attempt that was
under way is counted and made again. An engine that lacks the code of a run leaves it alone.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from outlast.engine.admission import QUEUED, turned_away
from outlast.engine.bodies import Bodies
from outlast.engine.daemon import Daemon
from outlast.engine.definition import WorkflowDefinition
from outlast.engine.digest import is_short, load_digest
from outlast.engine.drive import Drive
from outlast.engine.execution import Execution
from outlast.engine.interruptions import Suspect, count_interruptions
from outlast.engine.journal import Journal
from outlast.engine.leases import Lease, Leases, unless_meant
from outlast.engine.losses import Losses
from outlast.engine.turn import ending, next_commit, parked
from outlast.engine.watch import LoopWatch
from outlast.engine.watching import Strangers, Watcher, Watchers
from outlast.errors import (
    Closed,
    Fenced,
    Mismatch,
    NotFound,
    OutlastError,
    RunClosed,
    StoreFault,
    TryAgain,
    Undecodable,
    WorkflowMisuse,
)
from outlast.model.claim import Claim, ClaimedRun, Hold
from outlast.model.commit import Commit, Creation
from outlast.model.decision import News
from outlast.model.event import Event
from outlast.model.ids import new_id
from outlast.model.payloads import WorkflowContinued, WorkflowStarted
from outlast.model.run import Attribute, Run, Status
from outlast.model.times import NOW
from outlast.ports.clock import LeapingClock, ServerClock, hear, look_again_after
from outlast.ports.codec import Codec
from outlast.ports.notifier import hears_all
from outlast.ports.store import Store

LEASE_SECONDS = 30.0
IDLE_SECONDS = 1.0
SHORTEST_PAUSE = 0.001
LISTENING_SECONDS = 5.0
"""How often to look for work when nobody rings: more rarely where a doorbell can be trusted."""
JITTER = 0.2
CLAIM_AT_ONCE = 100
RUNS_AT_ONCE = 1000
LOOK_AT_ALL = 100
RESUME_AT_ONCE = 16
"""Histories that are read at the same time: one after the other would cost a round trip each."""

log = logging.getLogger("outlast.engine")


class Engine:
    """Runs workflows in this process on any store."""

    def __init__(
        self,
        store: Store,
        workflows: Iterable[WorkflowDefinition],
        *,
        codec: Codec,
        owner: str = "engine",
        lease: float = LEASE_SECONDS,
        concurrency: int = RUNS_AT_ONCE,
        watchers: Iterable[Watcher] = (),
        threads: Executor | None = None,
    ) -> None:
        self.workflows = {workflow.name: workflow for workflow in workflows}
        # A process that was restarted under the same name must not be taken for the old one.
        self.owner = f"{owner}-{new_id()}"
        self._luck = random.Random(self.owner)
        self._store = store
        self._clock = store.clock
        # A call that takes longer would cost the lease that it works under.
        self._patience = lease / 3
        watch = Watchers((Strangers(self.workflows), *watchers))
        self._journal = Journal(store, timeout=self._patience, watch=watch)
        self._codec = codec
        self._bodies = Bodies(codec, store.clock, grace=0.8 * self._patience, threads=threads)
        self._lease = lease
        self._concurrency = concurrency
        self._drives: dict[str, Drive] = {}
        self._tasks: dict[str, asyncio.Task[Run | None]] = {}
        self.leases = Leases(store, lease)
        self.losses = Losses(store, self._patience)
        self._claiming = Daemon(self._patience)
        self._watch: LoopWatch | None = None
        self.on_ticket: Callable[[], Awaitable[None]] | None = None
        """Called when a run has been sent to wait for its turn in a queue."""
        self._is_full = False
        self._others_wait = False
        self._end_listening: Callable[[], None] = lambda: None

    # -- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Begin to claim what is runnable and to keep claims alive."""
        if not self._claiming.is_running:
            if isinstance(self._clock, ServerClock):
                asked = self._clock.monotonic()
                self._clock.heard(await self._store.now(timeout=self._patience), asked=asked)
            self._claiming.start(self._claim_for_ever())
            self._end_listening = self._store.notifier.listen(self._heard)
            await self.leases.open()
            # Where time is virtual, nothing waits for it, and a thread beside would be chance.
            if not isinstance(self._clock, LeapingClock):
                self._watch = LoopWatch()
                self._watch.start()

    @property
    def room(self) -> int:
        """How many more runs this process may drive."""
        return self._concurrency - len(self._drives)

    @property
    def is_open(self) -> bool:
        """Whether it claims what is runnable."""
        return self._claiming.is_running

    @property
    def driving(self) -> int:
        """How many runs it drives now."""
        return len(self._drives)

    async def close(self) -> None:
        """Stop: what is under way is cut off, put on record and handed back at once."""
        if self._watch is not None:
            self._watch.stop()
        self._end_listening()
        await self._claiming.stop()
        await self.leases.close()
        for drive in self._drives.values():
            drive.stop()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=self._patience)
        claims = [drive.claim for drive in self._drives.values()]
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._journal.close(self._patience)
        await self.losses.close()
        if claims:
            await self._store.release(claims, timeout=self._patience)

    async def settled(self) -> None:
        """Return when no run is being driven here any more."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def poke(self, run_id: str) -> None:
        """Something was sent to a run: if it is driven here, it looks at once."""
        drive = self._drives.get(run_id)
        if drive is not None:
            drive.poke()

    def _heard(self, run_ids: Collection[str] | None) -> None:
        if run_ids is None:  # it may be any: many look by themselves, now and then
            run_ids = list(self._drives) if len(self._drives) <= LOOK_AT_ALL else ()
        for run_id in run_ids:
            self.poke(run_id)

    def drop(self, run_id: str) -> None:
        """A run has been ended or deleted by force: if it is driven here, that is over."""
        task = self._tasks.get(run_id)
        if task is not None:
            task.cancel()

    def ending(self, run_id: str) -> asyncio.Future[Run | None] | None:
        """What is done when the run is no longer driven here, with its record if it has ended; None
        if it is not now."""
        return self._tasks.get(run_id)

    # -- starting -----------------------------------------------------------------------------

    async def start(
        self,
        workflow: WorkflowDefinition,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        run_id: str,
        creation: Creation = Creation.NEW,
        attributes: dict[str, Attribute] | None = None,
    ) -> Run:
        """Begin a run here: its start, its first intents and its claim are one commit."""
        input, _, _ = workflow.signature.encode_call(self._codec, args, kwargs)
        run = Run(
            id=run_id,
            workflow=workflow.name,
            version=workflow.version,
            definition=workflow.hash,
            input=input,
            status=Status.RUNNING,
            attributes=attributes or {},
            runnable_at=NOW,
        )
        execution = Execution(
            workflow,
            run_id=run_id,
            uid=run.uid,
            codec=self._codec,
            digest=await load_digest(self._store, run, patience=self._patience),
        )
        started = WorkflowStarted(
            workflow_name=workflow.name, version=workflow.version, input=input
        )
        try:
            execution.deliver(started, self._clock.now())
            end = ending(execution)
            rests = end is not None and not isinstance(end, WorkflowContinued)
            asked = self._clock.monotonic()
            now = self._clock.now()
            until = now + timedelta(seconds=self._lease)
            claim = Claim(owner=self.owner, token=0, claimed_at=now, expires_at=until)
            commit = next_commit(execution, run, claim, end, sequence=0, seen=0, rests=rests)
            commit = msgspec.structs.replace(
                commit,
                expected=None,
                create=run,
                creation=creation,
                force=creation is Creation.REPLACE,
                hold=Hold(self.owner, self._lease),
            )
            committed = await self._journal.commit(commit)
        except BaseException:
            execution.evict()
            self._store.notifier.ring()  # it may have been written, and then needs a driver
            raise
        claim = msgspec.structs.replace(
            claim, token=committed.token, run_id=run_id, uid=committed.uid
        )
        run = msgspec.structs.replace(run, sequence=committed.sequence)
        if rests:
            execution.evict()
        else:
            self._drive(execution, run, claim, self.leases.hold(claim, asked=asked))
        return run

    async def write(self, commit: Commit) -> None:
        """Make a commit of somebody else durable, together with those that are ready here."""
        await self._journal.commit(commit)

    # -- going on -----------------------------------------------------------------------------

    async def claim(self, limit: int = CLAIM_AT_ONCE) -> int:
        """Take over runs that can go on and whose code is here; how many."""
        asked = self._clock.monotonic()
        claimed = await self._claiming.take(
            lambda: self._store.claim_runs(
                self.owner,
                self._lease,
                limit=limit,
                workflows=self.workflows,
                timeout=self._patience,
            ),
            self._give_back,
        )
        for one in claimed[:1]:
            hear(self._clock, one.claim.expires_at, self._lease, asked=asked)
        # Kept from now on: to read the histories of many may take longer than a lease.
        leases = [self.leases.hold(one.claim, asked=asked) for one in claimed]
        left = dict(zip(leases, claimed, strict=True))
        try:
            known = await self._histories([one.run for one in claimed])
            while left:
                some = list(left.items())[:RESUME_AT_ONCE]
                slow = []
                for lease, one in some:
                    history = known.get(one.run.id)
                    if history is None or one.run.wait_kind == QUEUED:
                        slow.append((one, lease, history))
                    else:
                        # It has all that it needs and waits for nothing: a task would only cost.
                        await self._take_over(one, lease, history)
                await asyncio.gather(*(self._take_over(*what) for what in slow))
                for lease, _ in some:
                    del left[lease]
        finally:
            if left:  # stopped in between: nobody here will ever drive these
                claims = [
                    lease.claim
                    for lease, one in left.items()
                    if one.run.id not in self._drives and self.leases.drop(lease)
                ]
                await self._store.release(claims, timeout=self._patience)
        return len(claimed)

    async def _give_back(self, claimed: Sequence[ClaimedRun]) -> None:
        await self._store.release([one.claim for one in claimed], timeout=self._patience)

    async def _histories(self, runs: Sequence[Run]) -> dict[str, list[Event]]:
        """Those that are short, in one call; what cannot be read so is read one by one."""
        ids = [run.id for run in runs if is_short(run)]
        if len(ids) < 2:
            return {}
        try:
            return await self._store.histories(ids, timeout=self._patience)
        except (OutlastError, OSError) as error:
            log.debug("histories are read one by one: %s", error)
            return {}

    async def _take_over(
        self, claimed: ClaimedRun, lease: Lease, history: Sequence[Event] | None
    ) -> None:
        try:
            if self.leases.keeps(lease):
                await self._resume(claimed, lease, history)
        except (Fenced, RunClosed, NotFound) as lost:
            self.leases.drop(lease)
            log.info("run %s is no longer ours: %s", claimed.run.id, lost)
        except Exception as error:  # noqa: BLE001 - one run must not hold up the others
            # The store hands the run out again when its lease ends.
            self.leases.drop(lease)
            log.error("run %s could not be taken over: %r", claimed.run.id, error)

    async def _resume(
        self, claimed: ClaimedRun, lease: Lease, history: Sequence[Event] | None
    ) -> None:
        run, claim = claimed.run, claimed.claim
        workflow = self.workflows[run.workflow]
        digest = await load_digest(self._store, run, history, patience=self._patience)
        waits = await turned_away(self._store, digest.events, run, claim, patience=self._patience)
        if waits is not None:
            await self._journal.commit(waits)
            self.leases.drop(lease)
            if self.on_ticket is not None:
                await self.on_ticket()
            return
        execution = Execution(
            workflow, run_id=run.id, uid=run.uid, codec=self._codec, digest=digest
        )
        try:
            execution.replay(digest.events)
            suspects = count_interruptions(execution, run, self._clock.now())
        except (Mismatch, Undecodable, WorkflowMisuse) as problem:
            execution.evict()
            log.error("run %s is halted: %s", run.id, problem)
            await self._journal.commit(parked(claim, run.sequence, problem))
            self.leases.drop(lease)
            return
        self._drive(execution, run, claim, lease, suspects)

    def _drive(
        self,
        execution: Execution,
        run: Run,
        claim: Claim,
        lease: Lease,
        suspects: Iterable[Suspect] = (),
    ) -> None:
        present = self._drives.get(run.id)
        if present is not None and present.claim.token > claim.token:
            execution.evict()  # the answer was so long on its way that we have claimed it anew
            self.leases.drop(lease)
            return
        if not self.leases.keeps(lease):
            execution.evict()  # lost meanwhile
            return
        if present is not None:
            # Its claim is superseded: it could work, but never record anything.
            self._tasks[run.id].cancel()
        drive = Drive(
            self._store,
            self._journal,
            self._bodies,
            execution,
            run,
            claim,
            patience=self._patience,
        )
        drive.under_way.suspects.wait(suspects)
        task = asyncio.create_task(drive.go(), name=f"run {run.id}")
        self._drives[run.id] = drive
        self._tasks[run.id] = task
        lease.lost, lease.renewed = partial(self._lose, drive, task), drive.poke
        if not self.leases.keeps(lease):
            task.cancel()  # lost a moment ago, when nobody was to be told yet
        drive.under_way.held = partial(self.leases.is_held, lease)
        drive.may_linger = self._may_linger
        task.add_done_callback(lambda task: self._over(run.id, drive, lease, task))
        # A task that is cancelled before it has begun runs no ``finally`` of its own.
        task.add_done_callback(lambda _: execution.evict())

    def _may_linger(self) -> bool:
        return not self._others_wait

    def _lose(self, drive: Drive, task: asyncio.Task[Run | None]) -> None:
        drive.was_lost = True
        task.cancel()

    def _over(
        self, run_id: str, drive: Drive, lease: Lease, task: asyncio.Task[Run | None]
    ) -> None:
        self.leases.drop(lease)
        if self._drives.get(run_id) is drive:
            del self._drives[run_id], self._tasks[run_id]
        if drive.was_lost and self._claiming.is_running:
            self.losses.tell(drive.claim, drive.under_way.unrecorded())
        if not task.cancelled() and task.exception() is not None:
            # The store hands the run out again when its lease ends.
            log.error("run %s is dropped: %r", run_id, task.exception())
        # One that ended as it should leaves nothing to be found: whoever looked at the store for
        # that would look as often as there are runs.
        if self._is_full or not drive.is_over:
            self._store.notifier.wake(News.RUNS)

    # -- daemons ------------------------------------------------------------------------------

    async def _claim_for_ever(self) -> None:
        while True:
            rings = self._store.notifier.rings_for(News.RUNS)
            room = min(self.room, CLAIM_AT_ONCE)
            self._is_full = room <= 0
            looked_at = self._clock.now()
            pause = IDLE_SECONDS
            try:
                claimed = await self.claim(room) if room > 0 else 0
                if claimed and claimed == room:
                    continue
                pause = await self._idle_time(looked_at)
            except (TryAgain, StoreFault, asyncio.CancelledError) as error:
                unless_meant()
                log.warning("claiming failed, trying again: %s", error)
            except Closed:
                raise  # nothing more can be claimed: the store was closed under us
            except Exception:
                log.exception("claiming failed in an unforeseen way, trying again")
            notifier = self._store.notifier
            await notifier.wait(self._clock, pause, since=rings, news=News.RUNS)

    async def _idle_time(self, looked_at: datetime) -> float:
        due = await self._store.next_runnable_at(timeout=self._patience)
        self._others_wait = self._is_full and due is not None and due <= looked_at
        listening = hears_all(self._store.notifier)
        seconds = LISTENING_SECONDS if listening else IDLE_SECONDS
        # Many processes that began together need not look together for ever.
        patience = look_again_after(
            self._clock, seconds * self._luck.uniform(1 - JITTER, 1 + JITTER)
        )
        if due is None:
            return patience
        # What was due when we looked could not be had: its code is not here, or no room is, or it is
        # due by our clock only. That is looked for soon, and then ever more rarely.
        away = abs((due - self._clock.now()).total_seconds())
        return max(min(away, IDLE_SECONDS if due <= looked_at else patience), SHORTEST_PAUSE)
