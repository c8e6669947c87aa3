"""A plain step that never ends does not keep its process from ending."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path

import pytest

from outlast.engine.steps.step_executor import DaemonThreads
from outlast.stores.sqlite import SqliteStore

PROGRAM = """
import asyncio, logging, signal, sys, time
import outlast

@outlast.step
def runaway() -> None:
    print("began", flush=True)
    while True:
        time.sleep(0.1)

@outlast.workflow
async def runs_away() -> None:
    await runaway()

async def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with outlast.App("sqlite:///" + sys.argv[1], workflows=[runs_away], lease=3) as app:
        await app.start(runs_away(), id="r")
        await stop.wait()

asyncio.run(main())
"""


@pytest.mark.proves("I30")
async def test_an_app_with_a_runaway_step_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """In bounded time, with a line that names the step; its run is handed back."""
    path = tmp_path / "s.db"
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    assert await program.stdout.readline() == b"began\n"
    program.send_signal(signal.SIGTERM)
    try:
        _, said = await asyncio.wait_for(program.communicate(), 30)
    finally:
        if program.returncode is None:
            program.kill()
    assert program.returncode == 0
    assert b"runaway of run r" in said
    async with SqliteStore(path) as store:
        run = await store.get("r")
        assert run.owner is None
        assert not run.status.terminal


async def test_calls_run_at_once_and_threads_are_used_again() -> None:
    """As many threads as there are calls at a time; a call that raises is told; no thread is joined."""
    threads = DaemonThreads(3, "test")
    together = threading.Barrier(3)
    loop = asyncio.get_running_loop()
    names = {
        one.name
        for _ in range(5)
        for one in await asyncio.gather(
            *(loop.run_in_executor(threads, _meet, together) for _ in range(3))
        )
    }
    assert names == {"test"}
    assert threads._threads == 3
    with pytest.raises(ValueError, match="no"):
        await loop.run_in_executor(threads, _fail)
    assert await loop.run_in_executor(threads, lambda: threading.current_thread().daemon)


async def test_calls_beyond_the_limit_wait() -> None:
    """They run when a thread is free."""
    threads = DaemonThreads(1, "test")
    loop = asyncio.get_running_loop()
    found = await asyncio.gather(*(loop.run_in_executor(threads, int, n) for n in range(50)))
    assert found == list(range(50))


def _meet(together: threading.Barrier) -> threading.Thread:
    together.wait(10)
    return threading.current_thread()


def _fail() -> None:
    raise ValueError("no")
