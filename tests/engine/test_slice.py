"""The port meets an engine: a workflow with steps, a gather and a timer, crashed at every commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from outlast import api
from outlast.codecs import JsonCodec
from outlast.engine.engine import LEASE_SECONDS, Engine
from outlast.errors import RunFailed, StepFailed
from outlast.model import Commit, Event, Outcome, Status
from outlast.stores.memory import MemoryStore
from outlast.testing.clock import ManualClock

bodies: list[tuple[str, int]] = []


@api.step
async def double(number: int) -> int:
    bodies.append(("double", number))
    return 2 * number


@api.step
async def plus(left: int, right: int) -> int:
    bodies.append(("plus", left))
    return left + right


@api.workflow
async def sums(number: int) -> int:
    left, right = await asyncio.gather(double(number), double(number + 1))
    await api.sleep(3600)
    return await plus(left, right)


class DoomedStore(MemoryStore):
    """The survivor's tables, seen by a process that dies at its n-th commit: the call never
    returns, and what it wrote is there or not."""

    def __init__(self, survivor: MemoryStore, *, at: int, written: bool) -> None:
        super().__init__(clock=survivor.clock)
        self._tables = survivor._tables
        self._left = at
        self._written = written
        self.dead = asyncio.Event()

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        self._left -= 1
        if self._left == 0:
            if self._written:
                await super().commit(commits, atomic=atomic)
            self.dead.set()
        if self.dead.is_set():
            await asyncio.get_running_loop().create_future()
        return await super().commit(commits, atomic=atomic, timeout=timeout)


async def finish(engine: Engine, run_id: str, clock: ManualClock, dead: asyncio.Event) -> Any:
    """The run's result, letting time pass whenever nothing happens; None if the process died."""
    waiting = asyncio.create_task(engine.result(run_id))
    while not waiting.done() and not dead.is_set():
        for _ in range(20):
            await asyncio.sleep(0)
        clock.advance(60)
    if waiting.done():
        return waiting.result()
    return None


async def die() -> None:
    """What kill -9 does to the tasks of a process: nobody gets to finish anything."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def shape(history: list[Event]) -> list[tuple[str, str]]:
    """History up to attempts: a crash may repeat an attempt, nothing else."""
    seen: list[tuple[str, str]] = []
    for event in history:
        line = (event.type, event.step_name)
        if line not in seen:
            seen.append(line)
    return seen


async def run_to_end(at: int = 0, *, written: bool = False) -> tuple[Any, list[Event], bool]:
    clock = ManualClock()
    survivor = MemoryStore(clock=clock)
    doomed = DoomedStore(survivor, at=at, written=written)
    engine = Engine(doomed, [sums], codec=JsonCodec())
    starting = asyncio.create_task(engine.start(sums, 20, id="sum"))
    while not starting.done() and not doomed.dead.is_set():
        await asyncio.sleep(0)
    result = None if doomed.dead.is_set() else await finish(engine, "sum", clock, doomed.dead)
    crashed = doomed.dead.is_set()
    if crashed:
        await die()
        clock.advance(LEASE_SECONDS + 1)
        engine = Engine(survivor, [sums], codec=JsonCodec())
        await engine.start(sums, 20, id="sum")
        result = await finish(engine, "sum", clock, asyncio.Event())
    return result, await survivor.history("sum"), crashed


@pytest.mark.proves("I7", "I8", "I9", "I12", "I14", "R-16", "S-16")
async def test_a_crash_at_any_commit_changes_nothing() -> None:
    """Whichever commit the process dies at, before or after it is written, a fresh engine ends
    with the same result and the same history, and no recorded step runs again."""
    bodies.clear()
    result, history, _ = await run_to_end()
    assert result == 82
    plain = shape(history)
    assert len(bodies) == 3

    at, crashes = 1, 0
    while True:
        crashed = False
        for written in (False, True):
            bodies.clear()
            result, history, crashed = await run_to_end(at, written=written)
            assert result == 82, (at, written)
            assert shape(history) == plain, (at, written)
            assert [event.sequence for event in history] == list(range(1, len(history) + 1))
            completed = [e.step_name for e in history if e.type == "step.completed"]
            assert sorted(completed) == ["0/double", "1/double", "plus"]
            attempts = sum(event.type == "step.started" for event in history)
            assert 3 <= len(bodies) <= attempts
            crashes += crashed
        if not crashed:
            break
        at += 1
    assert crashes == 2 * (at - 1) >= 8


@pytest.mark.proves("K-22", "K-26")
async def test_a_step_that_fails_is_told_to_the_workflow() -> None:
    """A failed step is recorded and raised where the workflow awaits it; unhandled, the run fails."""

    @api.step
    async def refuse(number: int) -> int:
        raise ValueError(f"no {number}")

    @api.workflow
    async def handled(number: int) -> str:
        try:
            return str(await refuse(number))
        except StepFailed as failure:
            return failure.error

    @api.workflow
    async def unhandled(number: int) -> int:
        result: int = await refuse(number)
        return result

    store = MemoryStore()
    engine = Engine(store, [handled, unhandled], codec=JsonCodec())
    assert await engine.result(await engine.start(handled, 1)) == "ValueError: no 1"
    run_id = await engine.start(unhandled, 2)
    with pytest.raises(RunFailed, match="no 2"):
        await engine.result(run_id)
    assert (await store.get(run_id)).status is Status.FAILED


@pytest.mark.proves("I14")
async def test_code_that_asks_for_something_else_is_parked() -> None:
    """A replay whose code differs from history stops the run and shows both sides."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    engine = Engine(store, [sums], codec=JsonCodec())
    await engine.start(sums, 20, id="sum")
    await engine.settled()

    @api.workflow
    async def changed(number: int) -> int:
        result: int = await plus(number, number)
        return result

    changed.name = sums.name
    clock.advance(7200)
    other = Engine(store, [changed], codec=JsonCodec())
    assert await other.claim() == 1
    run = await store.get("sum")
    assert run.status is Status.HALTED
    assert run.error is not None
    assert "0/double" in run.error
    assert "plus" in run.error
    assert await other.claim() == 0


@pytest.mark.proves("I15")
async def test_a_sleeping_run_leaves_memory_and_wakes_in_time() -> None:
    """A run that only waits gives its claim back and is handed out when its timer is due."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    engine = Engine(store, [sums], codec=JsonCodec())
    await engine.start(sums, 1, id="nap")
    await engine.settled()
    run = await store.get("nap")
    assert (run.status, run.wait_kind, run.owner) == (Status.WAITING, "timer", None)
    assert await engine.claim() == 0
    clock.advance(3600)
    assert await engine.claim() == 1
    assert await engine.result("nap") == 6
