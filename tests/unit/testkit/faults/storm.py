"""Many clients at once on a store in which calls go wrong, with everything they saw written down.

Starters race for the same ids, workers claim, commit, consume and sometimes sleep past their lease and
go on as zombies, senders signal, a deleter deletes. None of them trusts an answer that was lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress
from itertools import count

from msgspec import Raw

from outlast.errors import OutlastError, Refused, UnknownOutcome
from outlast.model import (
    Change,
    Commit,
    Entry,
    Event,
    Item,
    Run,
    Send,
    Start,
    Status,
    Timer,
)
from outlast.model.claim import ClaimedRun
from outlast.model.times import NOW
from outlast.ports import Store
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.checker import Evidence, Log, RecordingStore, dump
from outlast.testkit.faults import (
    Fault,
    FaultyStore,
    Random,
    again,
    let_others_go_first,
    persist,
)

RUNS = [f"run-{number}" for number in range(4)]
DOOMED = "doomed"
TTL = 30.0
RATES = dict.fromkeys(Fault, 0.04)


class Storm:
    """One history: the same seed gives the same one."""

    def __init__(self, store: Store, clock: ManualClock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.seed = seed
        self.random = random.Random(seed)
        self.log = Log()
        self.ids = count(1)

    async def evidence(self) -> Evidence:
        """Three phases of everybody at once, with a look at the store when all is quiet."""
        dumps = [await dump(self.store)]
        for phase in range(3):
            await asyncio.gather(
                *(self._start(self._client(f"starter {n} {phase}")) for n in range(2)),
                *(self._work(self._client(f"worker {n} {phase}")) for n in range(3)),
                *(self._send(self._client(f"sender {n} {phase}")) for n in range(2)),
                self._delete(self._client(f"deleter {phase}")),
            )
            dumps.append(await dump(self.store))
        return Evidence(ops=self.log.ops, dumps=dumps)

    def _client(self, name: str) -> RecordingStore:
        seed = self.random.getrandbits(32)
        faulty = FaultyStore(self.store, Random(seed, RATES), pause=let_others_go_first)
        return RecordingStore(faulty, self.log, name)

    def _fresh(self, kind: str) -> str:
        return f"{kind}-{next(self.ids)}"

    # -- clients ------------------------------------------------------------------------------

    async def _start(self, store: Store) -> None:
        for run_id in self.random.sample([*RUNS, DOOMED], 3):
            run = Run(id=run_id, uid=self._fresh("u"), workflow="w", runnable_at=NOW)
            begun = Event(type="workflow.started", run_id=run_id, id=self._fresh("e"))
            commit = Commit(run_id=run_id, id=self._fresh("c"), create=run, events=(begun,))
            await _try(persist(store, commit))
            await let_others_go_first()

    async def _send(self, store: Store) -> None:
        for _ in range(6):
            item = Item(kind="signal", name="go", id=self._fresh("i"))
            send = Send(run_id=self.random.choice(RUNS), item=item)
            for _ in range(self.random.choice([1, 1, 2])):
                await _try(again(lambda send=send: store.send([send])))  # type: ignore[misc]
            await let_others_go_first()

    async def _delete(self, store: Store) -> None:
        await let_others_go_first()
        await _try(again(lambda: store.delete(DOOMED)))

    async def _work(self, store: Store) -> None:
        for _ in range(6):
            try:
                claimed = await again(lambda: store.claim_runs("w", TTL, limit=2))
                for one in claimed:
                    await self._turns(store, one)
            except (Refused, UnknownOutcome):
                pass  # taken over, deleted, or nobody can tell: leave it to whoever comes next
            self.clock.advance(self.random.choice([0, 0, 1, TTL + 1]))
            await let_others_go_first()

    async def _turns(self, store: Store, claimed: ClaimedRun) -> None:
        """Advance a run as its owner until it is parked, ended, or lost."""
        sequence = claimed.run.sequence
        for _ in range(4):
            # A zombie: the lease may run out here, and others may come.
            self.clock.advance(self.random.choice([0, 0, 0, TTL * 2]))
            await let_others_go_first()
            commit = await self._turn(store, claimed, sequence)
            committed = await persist(store, commit)
            sequence = committed.sequence
            if commit.release and not (committed.still_runnable or committed.again):
                return
            if commit.change is not None and commit.change.status is Status.COMPLETED:
                return

    async def _turn(self, store: Store, claimed: ClaimedRun, sequence: int) -> Commit:
        run_id = claimed.run.id
        items = await again(lambda: store.inbox(run_id))
        events = [
            Event(type="signal.received", run_id=run_id, id=self._fresh("e"), step_name=item.id)
            for item in items
        ]
        step = self._fresh("step")
        for type in ("step.started", "step.completed"):
            event = Event(type=type, run_id=run_id, id=self._fresh("e"), step_name=step)
            events.append(event)
        ends = self.random.random() < 0.1
        if ends:
            events.append(Event(type="workflow.completed", run_id=run_id, id=self._fresh("e")))
        status = Status.COMPLETED if ends else Status.WAITING
        due = self.clock.now() if self.random.random() < 0.5 else None
        other = Item(kind="note", name="news", id=self._fresh("i"), data=Raw(b"{}"))
        return Commit(
            run_id=run_id,
            id=self._fresh("c"),
            uid=claimed.claim.uid,
            expected=sequence,
            token=claimed.claim.token,
            events=tuple(events),
            change=Change(status=status, runnable_at=due),
            consumes=tuple(item.number for item in items),
            seen=max([0, *(item.number for item in items)]),
            release=self.random.random() < 0.5,
            sends=(Send(run_id=self.random.choice(RUNS), item=other),),
            starts=self._children(run_id),
            timers=(Timer(run_id=run_id, id=step, fire_at=self.clock.now()),),
            entries=(Entry(run_id=run_id, id=self._fresh("a"), step_id=step, action="done"),),
        )

    def _children(self, run_id: str) -> tuple[Start, ...]:
        if self.random.random() < 0.8:
            return ()
        child = Run(id=f"{run_id}~{self.random.randint(1, 2)}", uid=self._fresh("u"), parent=run_id)
        begun = Event(type="workflow.started", run_id=child.id, id=self._fresh("e"))
        return (Start(child, (begun,)),)


async def _try(call: Awaitable[object]) -> None:
    """Wait for a call whose refusal is nobody's surprise."""
    with suppress(OutlastError):
        await call
