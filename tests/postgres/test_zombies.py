"""A worker that stands still past its lease is a zombie when it goes on: what it does counts for
nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from multiprocessing.connection import Connection as Pipe

import pytest

import outlast
from outlast.model.payloads import StepCompleted, StepStarted, payload_of
from outlast.stores.postgres import PostgresStore
from tests.postgres.places import SCHEMA, FreshStore, direct
from tests.sqlite_processes.crew import Member

pytestmark = pytest.mark.server

LEASE = 0.5
parent: Pipe | None = None
"""In the worker's process: its end of the pipe."""


@outlast.step
async def work() -> str:
    """Who did it. The worker says that it has begun, and waits for the word to go on."""
    if parent is None:
        return "heir"
    parent.send("begun")
    await asyncio.to_thread(parent.recv)
    return "zombie"


@outlast.workflow
async def job() -> str:
    """One step."""
    return await work()


def live(pipe: Pipe, url: str, schema: str) -> str:
    """Be a worker: start the run, do its step, and say how the run ended."""
    global parent
    parent = pipe

    async def live() -> str:
        store = PostgresStore(url, schema=schema)
        async with store, outlast.App(store, workflows=[job], lease=LEASE) as app:
            run = await app.start(job, id="r")
            return await run.result()

    return asyncio.run(live())


@pytest.mark.timeout(120)
@pytest.mark.proves("I4", "I5", "I6", "I8")
async def test_a_worker_that_was_stopped_past_its_lease_is_fenced() -> None:
    """Stopped in the middle of a step; another takes the run over and ends it; then it goes on. Its
    result is recorded nowhere, and it sees the other's."""
    async with FreshStore() as store:
        member = await asyncio.to_thread(Member, live, (direct(), SCHEMA))
        try:
            assert await asyncio.to_thread(member.pipe.recv) == "begun"
            assert member.process.pid is not None
            os.kill(member.process.pid, signal.SIGSTOP)
            async with outlast.App(store, workflows=[job], lease=LEASE) as heir:
                assert await heir.result("r") == "heir"
            os.kill(member.process.pid, signal.SIGCONT)
            member.pipe.send("go on")
            assert await asyncio.to_thread(member.pipe.recv) == "heir"
            await asyncio.to_thread(member.process.join)
        finally:
            await asyncio.to_thread(member.kill)
        history = await store.history("r")
        payloads = [payload_of(event) for event in history]
        assert [one.attempt for one in payloads if isinstance(one, StepStarted)] == [1, 2]
        assert [
            bytes(event.output or b"") for event in history if event.type == "step.completed"
        ] == [b'"heir"']
        assert sum(isinstance(one, StepCompleted) for one in payloads) == 1
        tokens = [event.token for event in history]
        assert tokens == sorted(tokens)
