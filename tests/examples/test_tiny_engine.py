"""The tiny engine of examples/, piece by piece: what an author of an engine gets from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import pytest

from examples.tiny_engine import Job, Plan, State, TinyEngine, TinyWorker
from outlast.errors import Fenced, RunExists, UnknownOutcome
from outlast.model import Event, Status
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.faults import Fault, FaultyStore, Never, Nth
from outlast.testkit.faults import Plan as FaultPlan
from outlast.testkit.wrapped_store import WrappedStore
from tests.stores.conformance.minimal_store import MinimalStore

T = TypeVar("T")
PLAN: Plan = {
    "left": Job(lambda: b"l" * 5_000),
    "right": Job(lambda: b"r" * 5_000),
    "join": Job(lambda left, right: left + right, needs=("left", "right")),
    "size": Job(lambda text: str(len(text)).encode(), needs=("join",)),
}


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until a test moves it."""
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Store]:
    """A store that has all the engine uses."""
    memory = request.param == "memory"
    made = MemoryStore(clock=clock) if memory else SqliteStore(str(tmp_path / "t.db"), clock=clock)
    async with made:
        yield made


async def finish(*workers: TinyWorker) -> list[str]:
    """Let workers take turns until nothing is left; the tasks, in the order in which they went."""
    done: list[str] = []
    while found := [await worker.work_once() for worker in workers]:
        if not any(found):
            break
        done += [task for task in found if task is not None]
    return done


@pytest.mark.proves("R-16", "S-15", "S-17")
async def test_a_plan_is_done_by_many_workers_each_task_once(store: Store) -> None:
    """Two workers share one run; each task is done once, after what it needs."""
    engine = TinyEngine(store, PLAN)
    await engine.begin("r")
    done = await finish(TinyWorker(engine, "a"), TinyWorker(engine, "b"))
    assert sorted(done) == sorted(PLAN)
    assert done[-2:] == ["join", "size"]
    assert await engine.value("r", "size") == b"10000"
    assert (await store.get("r")).status is Status.COMPLETED
    with pytest.raises(RunExists):
        await engine.begin("r")


@pytest.mark.proves("S-23")
async def test_workers_that_finish_at_once_overlook_nothing(store: Store) -> None:
    """Both branches are handed in at the same time; the join is offered, and once."""
    engine = TinyEngine(store, PLAN)
    await engine.begin("r")
    claims = [await store.claim_task("r", name, name, ttl=9) for name in ("left", "right")]
    await asyncio.gather(*(engine.hand_in(claim, b"v") for claim in claims if claim is not None))
    state = await engine.recover("r")
    assert sorted(state.done) == ["left", "right"]
    assert state.offered == ["left", "right", "join"]
    assert [task.id for task in await store.find_available_tasks(limit=9)] == ["join"]


@pytest.mark.proves("S-13", "S-14", "S-16", "S-17")
async def test_a_task_of_a_dead_worker_is_taken_over_and_its_ghost_is_fenced(
    store: Store, clock: ManualClock
) -> None:
    """While a claim lasts nobody else gets the task; then another does, and the first may not."""
    engine = TinyEngine(store, PLAN)
    await engine.begin("r")
    ghost = await store.claim_task("r", "left", "ghost", ttl=10)
    assert ghost is not None
    other = TinyWorker(engine, "other")
    assert await other.work_once() == "right"
    assert await other.work_once() is None
    clock.advance(10)
    assert await other.work_once() == "left"
    with pytest.raises(Fenced):
        await engine.hand_in(ghost, b"late")
    assert await finish(other) == ["join", "size"]
    assert await engine.value("r", "left") == b"l" * 5_000


@pytest.mark.proves("S-14")
async def test_a_task_that_failed_is_given_back(store: Store) -> None:
    """A worker that cannot do it releases the claim, and the next one need not wait."""
    broken: Plan = {**PLAN, "left": Job(lambda: bytes(1 // 0))}
    await TinyEngine(store, PLAN).begin("r")
    with pytest.raises(ZeroDivisionError):
        await finish(TinyWorker(TinyEngine(store, broken), "a"))
    assert "left" in await finish(TinyWorker(TinyEngine(store, PLAN), "b"))


@pytest.mark.proves("S-16")
async def test_a_worker_may_die_at_any_call(clock: ManualClock) -> None:
    """Whatever the last call of a worker was, and whether or not it was done, others go on."""
    calm = await _die(clock, Never())
    assert len(calm.sites) > 20
    for number, fault in product(range(1, len(calm.sites) + 1), DEADLY):
        await _die(clock, Nth(number, fault))


DEADLY = (Fault.LOST_REQUEST, Fault.LOST_ANSWER)


async def _die(clock: ManualClock, plan: FaultPlan) -> FaultyStore:
    """A worker that ends with its first fault, and an heir."""
    inner = MemoryStore(clock=clock)
    await TinyEngine(inner, PLAN).begin("r")
    faulty = FaultyStore(inner, plan)
    try:
        await finish(TinyWorker(TinyEngine(faulty, PLAN), "doomed"))
    except UnknownOutcome:
        clock.advance(60)
    engine = TinyEngine(inner, PLAN)
    await finish(TinyWorker(engine, "heir"))
    assert await engine.value("r", "size") == b"10000"
    types = [event.type for event in await inner.history("r")]
    assert (types.count("task.offered"), types.count("task.done")) == (4, 4)
    return faulty


@pytest.mark.proves("R-19", "S-16")
async def test_recovery_begins_at_the_snapshot(store: Store) -> None:
    """It reads the events after the snapshot alone, and without one it folds all to the same."""
    engine = TinyEngine(store, PLAN)
    await engine.begin("r")
    await finish(TinyWorker(engine, "a"))
    snapshot = await store.load_snapshot("r")
    assert snapshot.sequence > 1
    seen = _Reads(store)
    recovered = await TinyEngine(seen, PLAN).recover("r")
    assert seen.after == [snapshot.sequence]
    await store.drop_snapshot("r")
    assert await engine.recover("r") == recovered


@pytest.mark.proves("R-20")
async def test_recovery_loads_no_values(store: Store) -> None:
    """A state has hashes; a worker loads the values that its task needs, and no others."""
    engine = TinyEngine(store, PLAN)
    await engine.begin("r")
    await finish(TinyWorker(engine, "a"))
    seen = _Reads(store)
    state = await TinyEngine(seen, PLAN).recover("r")
    assert seen.facts == []
    assert len(state.done["join"]) == 64
    assert await TinyEngine(seen, PLAN).value("r", "size") == b"10000"
    assert seen.facts == [state.done["size"]]


@pytest.mark.proves("R-17", "R-18")
async def test_a_store_without_snapshots_will_do() -> None:
    """A store of six methods that can append and stream gets recovery from its history."""
    async with MinimalStore() as store:
        offered = Event(type="task.offered", run_id="r", step_name="left")
        done = Event(type="task.done", run_id="r", step_name="left", data=offered.data)
        await store.append("r", [offered])
        assert await TinyEngine(store, PLAN).recover("r") == State(sequence=1, offered=["left"])
        assert State(sequence=1, offered=["left"]).ready(PLAN) == ["right"]
        assert await store.append("r", [done], expected=1) == 2


class _Reads(WrappedStore):
    """Notes from where histories are read, and which facts."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.after: list[int] = []
        self.facts: list[str] = []

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if name == "history":
            self.after.append(kwargs["after"])
        if name == "find_fact":
            self.facts.append(args[0])
        return await call()
