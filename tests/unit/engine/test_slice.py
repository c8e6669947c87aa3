"""The port meets an engine: a workflow with steps, a gather and a timer, crashed at every commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import outlast
from outlast.engine.runner.engine import LEASE_S
from outlast.errors import RunFailed, StepFailed
from outlast.model import Commit, Event, Outcome, Receipt, Send, Status
from outlast.model.commit import Refusal
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock

bodies: list[tuple[str, int]] = []


@outlast.step
async def double(number: int) -> int:
    bodies.append(("double", number))
    return 2 * number


@outlast.step
async def plus(left: int, right: int) -> int:
    bodies.append(("plus", left))
    return left + right


@outlast.workflow
async def sums(number: int) -> int:
    left, right = await asyncio.gather(double(number), double(number + 1))
    await outlast.sleep(3600)
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

    async def send(self, sends: Sequence[Send], **options: Any) -> list[Receipt | Refusal]:
        if self.dead.is_set():
            await asyncio.get_running_loop().create_future()
        return await super().send(sends, **options)


async def finish(run: outlast.RunHandle[Any], clock: ManualClock, dead: asyncio.Event) -> Any:
    """The run's result, letting time pass whenever nothing happens; None if the process died."""
    waiting = asyncio.create_task(run.result())
    while not waiting.done() and not dead.is_set():
        await settle()
        clock.advance(60)
    return waiting.result() if waiting.done() else None


async def settle() -> None:
    """Let everything that can happen now happen."""
    for _ in range(40):
        await asyncio.sleep(0)


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
    result = None
    app = outlast.App(doomed, workflows=[sums])
    await app.open()
    starting = asyncio.create_task(app.start(sums(20), id="sum"))
    await settle()
    if not doomed.dead.is_set():
        result = await finish(starting.result(), clock, doomed.dead)
    crashed = doomed.dead.is_set()
    await die()
    if crashed:
        clock.advance(LEASE_S + 1)
        async with outlast.App(survivor, workflows=[sums]) as app:
            run = await app.start(sums(20), id="sum")
            result = await finish(run, clock, asyncio.Event())
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

    @outlast.step
    async def refuse(number: int) -> int:
        raise ValueError(f"no {number}")

    @outlast.workflow
    async def handled(number: int) -> str:
        try:
            return str(await refuse(number))
        except StepFailed as failure:
            return f"{failure.error_type}: {failure.error}"

    @outlast.workflow
    async def unhandled(number: int) -> int:
        result: int = await refuse(number)
        return result

    async with outlast.App("memory:", workflows=[handled, unhandled]) as app:
        assert await (await app.start(handled(1))).result() == "ValueError: no 1"
        run = await app.start(unhandled(2))
        with pytest.raises(RunFailed, match="no 2"):
            await run.result()
        assert (await run.status()).status is Status.FAILED


@pytest.mark.proves("I14")
async def test_code_that_asks_for_something_else_is_parked() -> None:
    """A replay whose code differs from history stops the run and shows both sides."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with outlast.App(store, workflows=[sums]) as app:
        await app.start(sums(20), id="sum")
        await settle()

    @outlast.workflow(name="sums")
    async def changed(number: int) -> int:
        result: int = await plus(number, number)
        return result

    clock.advance(7200)
    async with outlast.App(store, workflows=[changed]) as app:
        await settle()
        run = await app.get("sum").status()
    assert run.status is Status.HALTED
    assert run.error is not None
    assert "0/double" in run.error
    assert "plus" in run.error


@pytest.mark.proves("I15")
async def test_a_sleeping_run_leaves_memory_and_wakes_in_time() -> None:
    """A run that only waits gives its claim back and is handed out when its timer is due."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    async with outlast.App(store, workflows=[sums]) as app:
        handle = await app.start(sums(1), id="nap")
        await settle()
        run = await app.get("nap").status()
        assert (run.status, run.wait_kind, run.owner) == (Status.WAITING, "timer", None)
        clock.advance(3599)
        await settle()
        assert (await app.get("nap").status()).status is Status.WAITING
        assert await finish(handle, clock, asyncio.Event()) == 6
