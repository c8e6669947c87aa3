"""Runs that a worker's code cannot go on with: left to workers with other code, parked when there are none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.codecs import JsonCodec
from outlast.engine.definitions.definition import code_hash
from outlast.errors import RunParked, Unavailable
from outlast.model import Event, Run, Status
from outlast.model.claim import Worker
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing import VirtualClock, app
from tests.unit.engine.watching import PATIENCE, Watch


@outlast.step
async def add(number: int) -> int:
    return number + 1


@outlast.workflow(name="order")
async def old(number: int) -> int:
    await outlast.wait_for_signal("go")
    return await add(number)


@outlast.workflow(name="order")
async def needs_more(number: int, gift: bool) -> int:
    await outlast.wait_for_signal("go")
    return await add(number)


@outlast.workflow(name="order")
async def asks_else(number: int) -> int:
    number = await add(number)
    await outlast.wait_for_signal("go")
    return number


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s.db")
    async with opened:
        yield opened


async def waiting(store: Store, *run_ids: str) -> None:
    """Runs of the old code that wait for a signal, and that no worker has."""
    watch = Watch(store)
    async with outlast.App(store, workflows=[old], name="first") as first:
        for run_id in run_ids:
            await first.start(old(1), id=run_id)
        for run_id in run_ids:
            await watch.until(run_id, lambda run: run.status is Status.WAITING)


@pytest.mark.proves("I24")
@pytest.mark.parametrize("broken", [needs_more, asks_else], ids=["parameter", "mismatch"])
async def test_one_broken_deploy_parks_no_run(store: Store, broken: Any) -> None:
    """A worker with bad code leaves runs to the worker whose code fits: all of them complete."""
    names = [f"r{n}" for n in range(10)]
    await waiting(store, *names)
    seen = set()
    async with (
        outlast.App(store, workflows=[broken], name="bad") as bad,
        outlast.App(store, workflows=[old], name="good", concurrency=2) as good,
    ):
        await Watch(store).listed(2)
        for name in names:
            await bad.get(name).signal("go")
        for name in names:
            assert await good.get(name).result(timeout=PATIENCE) == 2
            seen.add((await store.get(name)).rejected_by)
    assert len(seen - {None}) <= 1


@pytest.mark.proves("I24", "I14")
async def test_a_run_that_no_code_fits_is_parked_and_new_code_takes_it_unasked(
    store: Store,
) -> None:
    """It says why. The same code does not try it again by itself; code that it has not seen does."""
    await waiting(store, "r")
    async with outlast.App(store, workflows=[needs_more], name="bad") as bad:
        await bad.get("r").signal("go")
        parked = await Watch(store).until("r", lambda run: run.status is Status.HALTED)
        assert parked.wait_kind == "mismatch"
        assert "'gift'" in str(parked.error)
        assert len(parked.rejections) == 1
        with pytest.raises(RunParked, match=r"(?s)run 'r' is parked: .*'gift'.*outlast resume r"):
            await bad.get("r").result()  # at once: it would wait for ever
    async with outlast.App(store, workflows=[needs_more], name="bad again") as again:
        await Watch(store).listed(1)
        await again.start(needs_more(1, True), id="other")
        await Watch(store).until("other", lambda run: run.status is Status.WAITING)
        assert (await store.get("r")).revision == parked.revision
    async with outlast.App(store, workflows=[asks_else], name="also bad"):
        await Watch(store).until("r", lambda run: len(run.rejections) == 2)
    async with outlast.App(store, workflows=[old], name="good") as good:
        assert await good.get("r").result(timeout=PATIENCE) == 2
    assert (await store.get("r")).error is None


@pytest.mark.proves("I24")
async def test_a_parked_run_is_tried_again_by_the_same_code_when_it_is_resumed(
    store: Store,
) -> None:
    """What was not part of the hash may have been mended: a person may ask for a try at any time."""
    await waiting(store, "r")
    async with outlast.App(store, workflows=[needs_more], name="bad") as bad:
        await bad.get("r").signal("go")
        parked = await Watch(store).until("r", lambda run: run.status is Status.HALTED)
        await bad.get("r").resume()
        await Watch(store).until("r", lambda run: run.revision > parked.revision)


async def test_the_result_of_a_parked_run_is_awaited_once_it_is_resumed(store: Store) -> None:
    """What was sent to it lets a worker try it again: then it is not said to be parked."""
    await waiting(store, "r")
    async with outlast.App(store, workflows=[needs_more], name="bad") as bad:
        await bad.get("r").signal("go")
        await Watch(store).until("r", lambda run: run.status is Status.HALTED)
    client = outlast.Client(store, codec=JsonCodec())
    with pytest.raises(RunParked):
        await client.get("r").result()
    await client.get("r").resume()
    with pytest.raises(TimeoutError, match="outlast why r"):
        await client.get("r").result(timeout=0.01)


async def test_a_run_is_parked_when_the_worker_it_was_left_to_is_gone() -> None:
    """It was left to a worker with other code, which died before it came to it."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(old, store=store, clock=clock) as first:
        await first.start(old(1), id="r")
        await clock.settle()
    other = Worker(owner="other", workflows=("order",), code="f" * 16)
    await store.heartbeat(other, 60)
    async with app(needs_more, store=store, clock=clock) as bad:
        await bad.get("r").signal("go")
        await clock.sleep(5)
        left = await store.get("r")
        assert (left.status, left.wait_kind, left.owner) == (Status.WAITING, "signal", None)
        assert len(left.rejections) == 1
        assert "'gift'" in str(left.error)
        await clock.sleep(30)
        assert (await store.get("r")).status is Status.WAITING  # it may still come
        await clock.sleep(60)
        assert (await store.get("r")).status is Status.HALTED


class LateWorkers(MemoryStore):
    """A worker is listed a moment after the first look."""

    asked = 0

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        self.asked += 1
        if self.asked == 1:
            return []
        late = Worker(owner="late", workflows=("order",), code="f" * 16, until=NEVER)
        return [late]


NEVER = Run(id="x").created_at.replace(year=9000)


async def test_a_worker_that_starts_while_a_run_is_parked_gets_it() -> None:
    """It may have looked for parked runs before this one was: so the run is given back to be claimed."""
    clock = VirtualClock()
    store = LateWorkers(clock=clock)
    async with app(old, store=store, clock=clock) as first:
        await first.start(old(1), id="r")
        await clock.settle()
    async with app(needs_more, store=store, clock=clock) as bad:
        await bad.get("r").signal("go")
        await clock.sleep(2)
        left = await store.get("r")
        assert store.asked >= 2
        assert (left.status, left.wait_kind, left.owner) == (Status.WAITING, "signal", None)
        assert left.runnable_at is not None


class Flaky(MemoryStore):
    """A store that cannot be reached for a while when histories are read."""

    failures = 0

    async def history(self, run_id: str, **options: Any) -> list[Event]:
        if self.failures:
            self.failures -= 1
            raise Unavailable("the server restarts")
        return await super().history(run_id, **options)

    async def histories(self, run_ids: Collection[str], **options: Any) -> dict[str, list[Event]]:
        raise Unavailable("the server restarts")


@pytest.mark.parametrize("failures", [2, 12, 60])
async def test_a_store_that_fails_is_no_reason_to_reject(failures: int) -> None:
    """The takeover is tried again, soon and then at every lease; the run is neither marked nor parked."""
    clock = VirtualClock()
    store = Flaky(clock=clock)
    async with app(old, store=store, clock=clock) as first:
        await first.start(old(1), id="r")
        await clock.settle()
    store.failures = failures
    async with app(old, store=store, clock=clock) as testing:
        await testing.get("r").signal("go")
        assert await testing.get("r").result() == 2
        run = await store.get("r")
        assert run.rejected_by is None


SWITCH = False


def test_code_is_told_apart_by_what_a_replay_executes() -> None:
    """Other bytecode, other parameters, another constant of the module; and nothing else."""

    def versions(value: bool) -> str:
        async def flow() -> bool:
            return SWITCH

        flow.__globals__["SWITCH"] = value
        return code_hash([outlast.workflow(name="flow")(flow).definition])

    hashes = {code_hash([one.definition]) for one in (old, needs_more, asks_else)}
    assert len(hashes) == 3
    assert code_hash([old.definition]) == code_hash([old.definition])
    assert versions(False) == versions(False) != versions(True)
