"""Patience belongs to the lease: a store that is away, or a run that is locked, costs time alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import outlast
import outlast.sync
from outlast.errors import Busy, ChildFailed, StoreFault, Unavailable
from outlast.model.event import payload_of
from outlast.model.payloads import StepLost, StepStarted
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testkit.fault_schedule import OUTAGES
from outlast.testkit.faults import Fault, FaultyStore, Outage
from outlast.testkit.simulation import SimulatedRun, simulate

LEASE = 30.0
WRITES = {"commit", "send"}
begun: list[str] = []


def nothing() -> None:
    """Nothing happens."""


hit: Callable[[], None] = nothing
MakeStore = Callable[[VirtualClock, Path], Store]


def in_memory(clock: VirtualClock, folder: Path) -> Store:
    """A store in memory."""
    return MemoryStore(clock=clock)


def in_sqlite(clock: VirtualClock, folder: Path) -> Store:
    """A store in a file."""
    return SqliteStore(folder / "runs.db", clock=clock)


both = pytest.mark.parametrize("make", [in_memory, in_sqlite])


@outlast.step
async def charge(what: str) -> str:
    begun.append(what)
    await takes(1)
    hit()
    return f"{what} charged"


@outlast.step(at_most_once=True)
async def charge_once(what: str) -> str:
    begun.append(what)
    await takes(1)
    hit()
    return f"{what} charged"


@outlast.step(queue="far")
async def charge_elsewhere(what: str) -> str:
    begun.append(what)
    await takes(1)
    hit()
    return f"{what} charged"


@outlast.step
async def long(what: str) -> str:
    begun.append(what)
    hit()
    await takes(3 * LEASE)
    return what


@outlast.workflow
async def order() -> list[str]:
    return [await charge("book"), await charge_once("pen"), await charge_elsewhere("ink")]


@outlast.workflow
async def works_long() -> str:
    return await long("work")


@outlast.workflow
async def kid() -> None:
    """Does nothing."""


@outlast.workflow
async def parent() -> str:
    hit()
    try:
        await outlast.child(kid(), id="taken")
    except ChildFailed:
        return "told"
    return "begun"


class Place:
    """An app on a store with faults."""

    def __init__(self, store: Store, outage: Outage, client: Any) -> None:
        self.store, self.outage, self.app = store, outage, client


@asynccontextmanager
async def opened(make: MakeStore, folder: Path) -> AsyncIterator[Place]:
    """An app on a store that can be away."""
    global hit
    begun.clear()
    clock = VirtualClock()
    inner = make(clock, folder)
    outage = Outage(clock)
    workflows = (order, works_long, kid, parent)
    hit = nothing
    store = FaultyStore(inner, outage)
    async with (
        inner,
        app(*workflows, steps=[charge_elsewhere], store=store, clock=clock, lease=LEASE) as client,
    ):
        yield Place(inner, outage, client)


async def attempts(store: Store, run_id: str) -> tuple[list[int], list[int]]:
    """Which attempts were begun, and which were lost, by the history."""
    payloads = [payload_of(event) for event in await store.history(run_id)]
    return (
        [one.attempt for one in payloads if isinstance(one, StepStarted)],
        [one.attempt for one in payloads if isinstance(one, StepLost)],
    )


@both
@pytest.mark.proves("I4", "I10")
@pytest.mark.parametrize("seconds", [1.0, LEASE / 2, 2 * LEASE])
async def test_an_outage_costs_time_and_no_step(
    make: MakeStore, tmp_path: Path, seconds: float
) -> None:
    """Each step ends just as the store goes away: what it has done is recorded when the store is back,
    also after the lease has expired, and it is done once."""
    global hit
    async with opened(make, tmp_path) as place:
        hit = lambda: place.outage.begin(seconds)  # noqa: E731
        run = await place.app.start(order(), id="o")
        assert await run.result() == ["book charged", "pen charged", "ink charged"]
        assert begun == ["book", "pen", "ink"]
        assert await attempts(place.store, "o") == ([1, 1, 1], [])


@both
@pytest.mark.proves("I4", "I10")
@pytest.mark.parametrize("seconds", [1.0, LEASE / 2])
async def test_a_locked_run_costs_time_and_no_step(
    make: MakeStore, tmp_path: Path, seconds: float
) -> None:
    """The same while another transaction holds the run."""
    global hit
    async with opened(make, tmp_path) as place:
        hit = lambda: place.outage.begin(seconds, Fault.REFUSED, only=WRITES)  # noqa: E731
        run = await place.app.start(order(), id="o")
        assert await run.result() == ["book charged", "pen charged", "ink charged"]
        assert begun == ["book", "pen", "ink"]


@both
@pytest.mark.proves("I4")
async def test_connections_that_are_lost_while_the_lease_is_renewed_cost_time(
    make: MakeStore, tmp_path: Path
) -> None:
    """The lease is renewed on another connection: the run is kept, however long that lasts."""
    global hit
    async with opened(make, tmp_path) as place:
        hit = lambda: place.outage.begin(5 * LEASE, but={"renew"})  # noqa: E731
        run = await place.app.start(order(), id="o")
        assert await run.result() == ["book charged", "pen charged", "ink charged"]
        assert begun == ["book", "pen", "ink"]


@both
@pytest.mark.proves("I4", "I5", "I10")
async def test_a_body_is_stopped_when_its_lease_is_in_doubt(
    make: MakeStore, tmp_path: Path
) -> None:
    """It may be running elsewhere. The attempt is on record as lost, and is no death."""
    global hit
    async with opened(make, tmp_path) as place:

        def once() -> None:
            if len(begun) == 1:
                place.outage.begin(2 * LEASE)

        hit = once
        run = await place.app.start(works_long(), id="o")
        assert await run.result() == "work"
        assert begun == ["work", "work"]
        assert await attempts(place.store, "o") == ([1, 2], [1])


@both
@pytest.mark.proves("I24")
async def test_a_look_for_a_child_is_repeated(make: MakeStore, tmp_path: Path) -> None:
    """The id of its own is taken, which the parent hears when the store is back."""
    global hit
    async with opened(make, tmp_path) as place:
        await (await place.app.start(kid(), id="taken")).result()
        hit = lambda: place.outage.begin(LEASE, only={"find_one"})  # noqa: E731
        await place.app.start(parent(), id="p", here=False)
        assert await place.app.get("p").result(timeout=10 * LEASE) == "told"


class Damaged(MemoryStore):
    """A store that cannot say for some time which run an id has, for a reason that is its own fault."""

    times = 0

    async def find_one(self, run_id: str, **options: Any) -> Any:
        if run_id == "taken" and self.times:
            self.times -= 1
            raise StoreFault("this page is damaged")
        return await super().find_one(run_id, **options)


@pytest.mark.proves("I24")
async def test_a_look_for_a_child_that_fails_for_another_reason_is_repeated() -> None:
    """The run is dropped, and taken up again, as after every error that nothing explains."""
    global hit
    clock = VirtualClock()
    store = Damaged(clock=clock)
    hit = nothing
    async with app(kid, parent, store=store, clock=clock, lease=LEASE) as client:
        await (await client.start(kid(), id="taken")).result()
        store.times = 3
        await client.start(parent(), id="p", here=False)
        assert await client.get("p").result(timeout=10 * LEASE) == "told"


@both
async def test_a_result_is_waited_for_through_an_outage(make: MakeStore, tmp_path: Path) -> None:
    """As long as the caller's time is not over; then it is told why."""
    async with opened(make, tmp_path) as place:
        await place.app.start(works_long(), id="o", here=False)
        place.outage.begin(LEASE)
        assert await place.app.get("o").result(timeout=20 * LEASE) == "work"
        place.outage.begin(10 * LEASE)
        with pytest.raises(Unavailable):
            await place.app.get("o").result(timeout=LEASE)


@both
async def test_a_caller_waits_for_a_locked_run_up_to_its_timeout(
    make: MakeStore, tmp_path: Path
) -> None:
    """30 s unless it says otherwise; then it is told that the lock may be its own."""
    async with opened(make, tmp_path) as place:
        await place.app.start(works_long(), id="o", here=False)
        place.outage.begin(20, Fault.REFUSED, only=WRITES | {"delete"})
        await place.app.get("o").signal("note", 1)
        place.outage.begin(80, Fault.REFUSED, only=WRITES | {"delete"})
        run = place.app.get("o")
        for call in (
            place.app.get("o").signal("note", 2, timeout=5),
            run.signal("note", 3, timeout=5),
            run.cancel(timeout=5),
            run.resume(timeout=5),
            run.update("ask", timeout=5),
            place.app.get("o").terminate(timeout=5),
            place.app.get("o").delete(timeout=5),
        ):
            with pytest.raises(Busy, match=r"Waited 5 s: if a transaction of your own"):
                await call
        with pytest.raises(Busy, match="Waited 30 s"):
            await place.app.get("o").cancel()
        await place.app.get("o").terminate()


class Locked(MemoryStore):
    """A store whose runs are locked by another transaction."""

    is_locked = False

    async def commit(self, commits: Any, **options: Any) -> Any:
        if self.is_locked:
            raise Busy("locked")
        return await super().commit(commits, **options)

    async def send(self, *args: Any, **options: Any) -> Any:
        if self.is_locked:
            raise Busy("locked")
        return await super().send(*args, **options)

    async def delete(self, *args: Any, **options: Any) -> Any:
        raise Busy("locked")


def test_a_synchronous_caller_waits_up_to_its_timeout() -> None:
    """Each call takes one, and passes it on."""
    store = Locked()
    with outlast.sync.App(store, workflows=[waits]) as opened:
        run = opened.start(waits(), id="w")
        store.is_locked = True
        for call in (
            partial(run.signal, "note"),
            run.cancel,
            run.pause,
            run.terminate,
            run.delete,
        ):
            with pytest.raises(Busy):
                call(timeout=0.05)
        store.is_locked = False


@outlast.workflow
async def waits() -> str:
    return await outlast.wait_for_signal("note", str)


class Broken(MemoryStore):
    """A store whose commits of completed steps fail in an unforeseen way, for some times."""

    times = 0

    async def commit(self, commits: Any, **options: Any) -> Any:
        ends = any(str(event.type) == "step.completed" for one in commits for event in one.events)
        if ends and self.times:
            self.times -= 1
            raise StoreFault("a trigger of the user's own has failed")
        return await super().commit(commits, **options)


@pytest.mark.proves("I10", "I24")
async def test_a_run_that_is_dropped_is_handed_back_and_not_taken_for_a_death() -> None:
    """More often than a process may die under a step, and sooner than its leases end."""
    begun.clear()
    clock = VirtualClock()
    store = Broken(clock=clock)
    store.times = 4
    async with app(order, steps=[charge_elsewhere], store=store, clock=clock, lease=600) as client:
        started = clock.monotonic()
        run = await client.start(order(), id="o")
        assert (await run.result())[0] == "book charged"
        assert begun.count("book") > 3
        assert clock.monotonic() - started < 600
    _, lost = await attempts(store, "o")
    assert len(lost) >= 3


@pytest.mark.proves("I30")
async def test_a_store_that_is_away_does_not_keep_a_process_that_is_to_end() -> None:
    """A commit waits when the app is closed: that is bounded by the lease."""
    global hit
    begun.clear()
    away = asyncio.Event()
    store = MemoryStore()
    outage = Outage(store.clock)

    def go_away() -> None:
        outage.begin(600)
        away.set()

    hit = go_away
    client = outlast.App(FaultyStore(store, outage), workflows=[works_long], lease=1.5)
    await client.open()
    await client.start(works_long(), id="o")
    await away.wait()
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable):  # its claims cannot be handed back
            await client.close()


@outlast.workflow
async def shops() -> list[str]:
    first = await asyncio.gather(charge("a"), charge("b"), long("c"))
    return [*first, await charge("d")]


@pytest.mark.proves("I4", "I10", "I24")
@pytest.mark.parametrize("seed", range(40))
def test_runs_end_as_they_should_through_outages(seed: int) -> None:
    """Outages of 1 s to two leases, of all calls, of all but renewals, or of writes alone."""
    simulate(seed, SimulatedRun(shops), rates=OUTAGES).check()
