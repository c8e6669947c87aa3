"""A process that stands still: a blocked loop keeps its leases; who holds the interpreter, or was
stopped, is taken over, and what it does then counts for nothing."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.model.event import payload_of
from outlast.model.payloads import StepCompleted, StepStarted
from outlast.ports import Store
from tests.stores.sqlite_processes.crew import Member, pause_for
from tests.unit.worker.places import KINDS, Place, place_of

pytestmark = pytest.mark.timeout(120)

LEASE = 1.5
LONG = 3 * LEASE
parent: Pipe | None = None
"""In the other process: the way to the test."""


def begun() -> bool:
    """Say that a body has begun; whether that is in the other process."""
    if parent is not None:
        parent.send("begun")
    return parent is not None


@outlast.step
async def block() -> str:
    if begun():
        pause_for(LONG)
        return "blocked"
    return "heir"


@outlast.step(queue="blocking")
async def block_a_worker() -> str:
    if begun():
        pause_for(LONG)
        return "blocked"
    return "heir"


@outlast.step
async def hold_the_interpreter() -> str:
    if begun():
        # A call of C that does not let go of the GIL.
        ctypes.PyDLL(None).usleep(int(LONG * 1_000_000))
        return "zombie"
    return "heir"


@outlast.step
async def stand_still() -> str:
    if begun():
        assert parent is not None
        await asyncio.to_thread(parent.recv)  # it is stopped meanwhile
        return "zombie"
    return "heir"


@outlast.workflow
async def blocks() -> str:
    return await block()


@outlast.workflow
async def blocks_a_worker() -> str:
    return await block_a_worker()


@outlast.workflow
async def holds_the_interpreter() -> str:
    return await hold_the_interpreter()


@outlast.workflow
async def stands_still() -> str:
    return await stand_still()


WORKFLOWS = [blocks, holds_the_interpreter, stands_still]


def live(pipe: Pipe, place: Place, name: str | None) -> str:
    """Be a process: start a run and see how it ends, or do the queued step until it is done."""
    global parent
    parent = pipe

    async def live() -> str:
        async with place.store() as store:
            if name is None:
                async with outlast.App(store, steps=[block_a_worker], lease=LEASE):
                    await asyncio.to_thread(pipe.recv)
                return "over"
            [workflow] = [one for one in WORKFLOWS if one.name == name]
            async with outlast.App(store, workflows=WORKFLOWS, lease=LEASE) as app:
                run: Any = await app.start(workflow(), id="r")
                return str(await run.result())

    return asyncio.run(live())


@asynccontextmanager
async def beside(place: Place, name: str | None) -> AsyncIterator[Member]:
    """The other process, which is killed at the end at the latest."""
    member = await asyncio.to_thread(Member, live, (place, name))
    try:
        yield member
    finally:
        await asyncio.to_thread(member.kill)


async def heard(member: Member) -> Any:
    """The next word from the other process."""
    return await asyncio.to_thread(member.pipe.recv)


async def attempts(store: Store) -> list[int]:
    """The attempts that were begun; one of them was completed."""
    payloads = [payload_of(event) for event in await store.history("r")]
    assert sum(isinstance(one, StepCompleted) for one in payloads) == 1
    return [one.attempt for one in payloads if isinstance(one, StepStarted)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.proves("I4", "I5", "S-15")
async def test_a_step_that_blocks_the_loop_keeps_its_run(kind: str, tmp_path: Path) -> None:
    """For three leases, while another process is waiting to take over: its body runs once."""
    place = place_of(kind, tmp_path)
    async with place.fresh() as store, beside(place, "blocks") as member:
        assert await heard(member) == "begun"
        async with outlast.App(store, workflows=WORKFLOWS, lease=LEASE) as heir:
            assert await heir.get("r").result() == "blocked"
        assert await heard(member) == "blocked"
        assert await attempts(store) == [1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.proves("I4", "S-15", "S-17")
async def test_a_step_that_blocks_the_loop_keeps_its_task(kind: str, tmp_path: Path) -> None:
    """The same for a queued step, and another worker."""
    place = place_of(kind, tmp_path)
    async with (
        place.fresh() as store,
        outlast.App(store, workflows=[blocks_a_worker], lease=LEASE) as driver,
        beside(place, None) as member,
    ):
        run = await driver.start(blocks_a_worker(), id="r")
        assert await heard(member) == "begun"
        async with outlast.App(store, steps=[block_a_worker], lease=LEASE):
            assert await run.result() == "blocked"
        member.pipe.send("stop")
        assert await heard(member) == "over"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.proves("I4", "I5", "I6", "I8")
async def test_who_holds_the_interpreter_is_fenced(kind: str, tmp_path: Path) -> None:
    """Nothing of its process moves, so its lease ends, another does the step, and what it has done
    is recorded nowhere."""
    place = place_of(kind, tmp_path)
    async with place.fresh() as store, beside(place, "holds_the_interpreter") as member:
        assert await heard(member) == "begun"
        async with outlast.App(store, workflows=WORKFLOWS, lease=LEASE) as heir:
            assert await heir.get("r").result() == "heir"
        assert await heard(member) == "heir"
        assert await attempts(store) == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.proves("I4", "I5", "I6", "I8")
async def test_a_process_that_was_stopped_past_its_lease_is_fenced(
    kind: str, tmp_path: Path
) -> None:
    """Stopped in the middle of a step; another takes the run over and ends it; then it goes on. Its
    result is recorded nowhere, and it sees the other's."""
    place = place_of(kind, tmp_path)
    async with place.fresh() as store, beside(place, "stands_still") as member:
        assert await heard(member) == "begun"
        assert member.process.pid is not None
        os.kill(member.process.pid, signal.SIGSTOP)
        async with outlast.App(store, workflows=WORKFLOWS, lease=LEASE) as heir:
            assert await heir.get("r").result() == "heir"
        os.kill(member.process.pid, signal.SIGCONT)
        member.pipe.send("go on")
        assert await heard(member) == "heir"
        assert await attempts(store) == [1, 2]
        tokens = [event.token for event in await store.history("r")]
        assert tokens == sorted(tokens)
