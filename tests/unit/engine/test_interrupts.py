"""A step that raises what ends processes has failed, wherever its body runs: its process goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import MapFailed, StepFailed
from outlast.stores.sqlite import SqliteStore

PATIENCE = 20
TWICE = outlast.Retry(attempts=2, delay=0.01)
began: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    began.clear()


@outlast.step(retry=TWICE)
def plain() -> None:
    began.append("plain")
    raise KeyboardInterrupt("poison")


@outlast.step(retry=TWICE)
async def awaited() -> None:
    began.append("awaited")
    raise KeyboardInterrupt("poison")


@outlast.step(retry=TWICE, timeout=10)
async def limited() -> None:
    began.append("limited")
    raise KeyboardInterrupt("poison")


@outlast.step(retry=TWICE, queue="mail")
def queued() -> None:
    began.append("queued")
    raise KeyboardInterrupt("poison")


@outlast.step(process=True)
def elsewhere() -> None:
    raise KeyboardInterrupt("poison")


@outlast.step(retry=TWICE)
async def item(number: int) -> None:
    began.append("item")
    raise KeyboardInterrupt("poison")


STEPS = {step.definition.name: step for step in (plain, awaited, limited, queued, elsewhere)}


@outlast.workflow
async def calls(name: str) -> str:
    try:
        await STEPS[name]()
    except StepFailed as failure:
        return str(failure)
    return "never"


@outlast.workflow
async def maps() -> str:
    try:
        await outlast.map(item, [1])
    except MapFailed as failure:
        return str(failure)
    return "never"


@outlast.workflow
async def fine() -> str:
    return "fine"


@pytest.mark.proves("I24")
@pytest.mark.parametrize("kind", [*STEPS, "item"])
async def test_a_step_that_raises_keyboard_interrupt_has_failed(kind: str, tmp_path: Path) -> None:
    """On the loop, in a thread, in a process, in a map or on a queue: each attempt is
    counted, the run hears of the error, and the process goes on with others."""
    store = SqliteStore(tmp_path / "s.db")
    options: dict[str, Any] = {"workflows": [calls, maps, fine], "steps": [queued]}
    async with store, outlast.App(store, **options) as app:
        run = await (app.start(maps()) if kind == "item" else app.start(calls(kind)))
        error = await run.result(timeout=PATIENCE)
        assert "KeyboardInterrupt: poison" in error
        assert began == ([] if kind == "elsewhere" else [kind, kind])
        assert await (await app.start(fine())).result(timeout=PATIENCE) == "fine"


PROGRAM = """
import asyncio, sys
import outlast

@outlast.step
async def long() -> None:
    print("began", flush=True)
    await asyncio.sleep(60)

@outlast.workflow
async def waits() -> None:
    await long()

async def main() -> None:
    async with outlast.App("sqlite:///" + sys.argv[1], workflows=[waits]) as app:
        await app.start(waits(), id="w")
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_ctrl_c_ends_the_process_and_is_no_failure_of_the_step(tmp_path: Path) -> None:
    """asyncio.run cancels the program on SIGINT; the step is recorded as stopped, not as failed."""
    path = tmp_path / "s.db"
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, str(path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert program.stdout is not None
    assert await program.stdout.readline() == b"began\n"
    program.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(program.wait(), 30) != 0
    async with SqliteStore(path) as store:
        run = await store.find_one("w")
        assert run is not None
        assert not run.status.terminal
        assert run.owner is None
        events = [event for event in await store.history("w") if event.type == "step.failed"]
        assert all(b'"stopped":true' in bytes(event.data) for event in events)
