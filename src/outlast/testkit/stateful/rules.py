"""The rules: everything that a caller can do to a store, in any order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from msgspec.structs import replace

from outlast.model.query import RunQuery
from outlast.model.run import Status
from outlast.model.run_contents import Task
from outlast.ports.port import Capability
from outlast.testkit.stateful.recipes import (
    ACTIVITIES,
    ADDRESSES,
    FACTS,
    ITEMS,
    KEYS,
    QUEUES,
    RECORDS,
    RUNS,
    TIMERS,
    WORKFLOWS,
    runs,
    statuses,
    words,
)
from outlast.testkit.stateful.world import LEFT, RIGHT
from outlast.testkit.stateful.writing import Claims, has_tasks, owners, picks, ttls

queue_names = st.sampled_from(QUEUES)


class Details(Claims):
    """Inboxes, keys, facts, snapshots, deletion, retention, and the conveniences over them."""

    @rule(
        parcels=st.lists(
            st.tuples(
                st.sampled_from(ADDRESSES),
                st.sampled_from(ITEMS),
                words("any", "any", "any", "right", "wrong"),
            ),
            min_size=1,
            max_size=3,
        ),
        pick=st.none() | picks,
    )
    def send(self, parcels: list[tuple[str, str, str]], pick: int | None) -> None:
        sends = [[self.parcel(*words, side) for words in parcels] for side in (LEFT, RIGHT)]
        held = None if pick is None else self._pick(pick, True)
        self.both(
            lambda side: self.stores[side].send(
                sends[side], finishes=[] if held is None else [held[side]]
            )
        )

    @rule(name=st.sampled_from(KEYS), run=st.none() | runs, value=st.sampled_from(["v1", "v2"]))
    def remember(self, name: tuple[str, str], run: str | None, value: str) -> None:
        self.both(lambda side: self.stores[side].remember(*name, value, run_id=run))

    @rule(fact=st.sampled_from(FACTS), drop=st.booleans())
    def facts(self, fact: Any, drop: bool) -> None:
        if drop:
            self.both(lambda side: self.stores[side].drop_fact(fact.hash))
        else:
            self.both(lambda side: self.stores[side].put_fact(fact))

    @rule(run=runs)
    def drop_snapshot(self, run: str) -> None:
        self.both(lambda side: self.stores[side].drop_snapshot(run))

    @rule(run=runs, timer=st.sampled_from(TIMERS))
    def fire(self, run: str, timer: str) -> None:
        token = self.token("current", run)
        self.both(lambda side: self.stores[side].mark_timer_fired(run, timer, token=token[side]))

    @rule(id=st.sampled_from([*ACTIVITIES, "none"]), seconds=st.sampled_from([0.0, 50.0]))
    def look_around(self, id: str, seconds: float) -> None:
        now = self.clock.now() + timedelta(seconds=seconds)
        self.both(lambda side: self.stores[side].find_activity(id))
        self.both(lambda side: self.stores[side].due_timers(now=now, limit=2))
        self.both(lambda side: self.stores[side].find_available_tasks(queue="slow"))
        self.both(lambda side: self.stores[side].snapshot_ids(after="a", limit=1))

    @rule(run=runs, number=st.integers(0, len(RECORDS) - 1), stale=st.booleans())
    def save(self, run: str, number: int, stale: bool) -> None:
        record = self.record(run, number, "park", Status.RUNNING)
        here = self.dumps[LEFT].runs.get(run)
        revision = None if here is None else here.run.revision - stale
        token = self.token("current", run)
        self.both(lambda side: self.stores[side].save(record, revision=revision, token=token[side]))

    @rule(run=runs, count=st.integers(0, 2), expected=st.none() | st.integers(0, 3))
    def append_plainly(self, run: str, count: int, expected: int | None) -> None:
        events = [self.event(run) for _ in range(count)]
        token = self.token("current", run)
        self.both(
            lambda side: self.stores[side].append(run, events, expected=expected, token=token[side])
        )

    @rule(places=st.lists(st.tuples(runs, st.integers(1, 3)), max_size=3))
    def append_numbered(self, places: list[tuple[str, int]]) -> None:
        if not all(Capability.ATOMIC_BATCH in store.capabilities for store in self.stores):
            places = [place for place in places if place[0] == places[0][0]]  # of one run
        events = [replace(self.event(run), sequence=number) for run, number in places]
        self.both(lambda side: self.stores[side].append_events(events))

    @rule(run=st.sampled_from([*RUNS, "ghost"]))
    def delete(self, run: str) -> None:
        self.both(lambda side: self.stores[side].delete(run))

    @rule(
        seconds=st.sampled_from([0.0, -1.0, 100.0]),
        status=st.sets(statuses, max_size=2),
        limit=st.integers(1, 2),
    )
    def expire(self, seconds: float, status: set[Status], limit: int) -> None:
        before = self.clock.now() - timedelta(seconds=seconds)
        self.both(lambda side: self.stores[side].expire(before, status=status, limit=limit))

    @rule(
        workflow=st.none() | st.sampled_from(WORKFLOWS),
        status=st.frozensets(statuses, max_size=2),
        parent=st.none() | st.none() | st.sampled_from(["a", "b"]),
        attributes=st.sampled_from(
            [{}, {}, {"n": 1}, {"n": True}, {"n": 1.0}, {"s": "1", "n": True}]
        ),
        limit=st.integers(1, 3),
    )
    def find(self, **filters: Any) -> None:
        query = RunQuery(**filters)
        self.both(lambda side: self._pages(side, query))

    async def _pages(self, side: int, query: RunQuery) -> list[list[str]]:
        pages: list[list[str]] = []
        while True:
            page = await self.stores[side].find(query)
            pages.append([run.id for run in page.items])
            if page.next is None:
                return pages
            query = replace(query, after=page.next)

    @rule(really=st.sampled_from([False, False, False, True]))
    def reopen(self, really: bool) -> None:
        """Close and open again: nothing is lost and nothing comes back."""
        if not really:
            return

        async def again(side: int) -> None:
            await self.queues[side].close()
            await self.stores[side].close()
            await self.stores[side].open()
            await self.queues[side].open()

        self.both(again)


class Rules(Details):
    """The queue of the store, too."""

    @rule(
        name=queue_names,
        ids=st.lists(st.sampled_from(["q1", "q2", "q3"]), min_size=1, max_size=2),
        run=st.sampled_from(["", "", "a"]),
        delay=st.sampled_from([0.0, 0.0, 10.0]),
        priority=st.sampled_from([0, 0, -1]),
    )
    def enqueue(self, name: str, ids: list[str], run: str, delay: float, priority: int) -> None:
        tasks = [Task(id=f"{name}-{id}", run_id=run, priority=priority) for id in ids]
        self.both(lambda side: self.queues[side].enqueue(name, tasks, delay=delay))

    @rule(name=queue_names, owner=owners, visibility=ttls)
    def take(self, name: str, owner: str, visibility: float) -> None:
        answers = self.done(
            lambda side: self.queues[side].take(name, owner=owner, visibility=visibility)
        )
        if answers is not None:
            self._keep(*(None if one is None else one.claim for one in answers))

    @rule(
        name=queue_names,
        owner=owners,
        visibility=ttls,
        deed=words("ack", "nack", "reject", "lose", "keep"),
    )
    def deliver(self, name: str, owner: str, visibility: float, deed: str) -> None:
        """The life of a task in a queue in one go."""
        self.enqueue(name, ["q1", "q2"], "", 0.0, 0)
        known = len(self.task_claims)
        self.take(name, owner, visibility)
        if len(self.task_claims) == known:
            return
        held = self.task_claims[known]
        if deed == "ack":
            self.both(lambda side: self.queues[side].ack(held[side]))
        elif deed in {"nack", "reject"}:
            back = deed == "nack"
            self.both(lambda side: self.queues[side].nack(held[side], requeue=back))
        elif deed == "lose":
            self.clock.advance(visibility)
            self.take(name, owner, visibility)
            self.both(lambda side: self.queues[side].ack(held[side]))

    @precondition(has_tasks)
    @rule(pick=picks)
    def ack(self, pick: int) -> None:
        if (held := self._pick(pick, True)) is not None:
            self.both(lambda side: self.queues[side].ack(held[side]))

    @precondition(has_tasks)
    @rule(
        pick=picks,
        delay=st.sampled_from([0.0, 0.0, 10.0]),
        requeue=st.booleans(),
        drop=st.booleans(),
    )
    def nack(self, pick: int, **how: Any) -> None:
        if (held := self._pick(pick, True)) is not None:
            self.both(lambda side: self.queues[side].nack(held[side], **how))

    @precondition(has_tasks)
    @rule(pick=picks, seconds=ttls)
    def keep(self, pick: int, seconds: float) -> None:
        if (held := self._pick(pick, True)) is not None:
            self.both(lambda side: self.queues[side].extend(held[side], seconds))

    @rule(name=queue_names, ids=st.none() | st.just(["default-q1", "t1"]), purge=st.booleans())
    def raise_the_dead(self, name: str, ids: list[str] | None, purge: bool) -> None:
        if purge:
            self.both(lambda side: self.queues[side].purge(name, ids))
        else:
            self.both(lambda side: self.queues[side].redrive(name, ids))
