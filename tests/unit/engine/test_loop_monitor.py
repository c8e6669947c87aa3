"""A blocked loop: whoever blocks it is named while it does, with the line and what to do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import outlast
from outlast import sync

spoken = threading.Event()


class Listener(logging.Handler):
    """Keeps what is logged, and lets those go on who block until something is."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(record.getMessage())
        spoken.set()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """Hears what the engine says, from a watch that is in a hurry."""
    monkeypatch.setattr("outlast.engine.runner.loop_thread.BLOCKED_AFTER_S", 0.1)
    spoken.clear()
    listener, log = Listener(), logging.getLogger("outlast.engine")
    log.addHandler(listener)
    level = log.level
    log.setLevel(logging.ERROR)
    yield listener
    log.setLevel(level)
    log.removeHandler(listener)


def stand_still() -> bool:
    """Block, as `time.sleep` or a request would, until somebody complains."""
    return spoken.wait(20)


@outlast.step
async def add(number: int) -> int:
    return number + 1


@sync.step(name="add")
def add_plainly(number: int) -> int:
    return number + 1


@outlast.step
async def blocks_in_a_step() -> bool:
    return stand_still()


@outlast.step(timeout=60)
async def blocks_in_a_limited_step() -> bool:
    return stand_still()


@outlast.workflow
async def blocks_at_once() -> bool:
    return stand_still()


@outlast.workflow
async def blocks() -> bool:
    await add(1)
    return stand_still()


@outlast.workflow
def blocks_sync() -> bool:
    add_plainly(1)
    return stand_still()


@outlast.workflow
async def has_a_step_that_blocks() -> bool:
    return await blocks_in_a_step()


@outlast.workflow
async def has_a_limited_step_that_blocks() -> bool:
    return await blocks_in_a_limited_step()


@pytest.mark.parametrize(
    ("workflow", "who"),
    [
        (blocks_at_once, "workflow 'blocks_at_once' (run 'it') blocks"),
        (blocks, "workflow 'blocks' (run 'it') blocks"),
        (blocks_sync, "workflow 'blocks_sync' (run 'it') blocks"),
        (has_a_step_that_blocks, "step 'blocks_in_a_step' blocks"),
        (has_a_limited_step_that_blocks, "step 'blocks_in_a_limited_step' blocks"),
    ],
)
async def test_code_that_blocks_the_loop_is_named(
    workflow: Any, who: str, listener: Listener
) -> None:
    """The error names the workflow or step and the line where it stands, and says what to do."""
    async with outlast.App("memory:", workflows=[workflow]) as app:
        run = await app.start(workflow(), id="it")
        assert await run.result() is True
    told = listener.heard[0]
    assert told.startswith(who)
    line = stand_still.__code__.co_firstlineno + 2
    assert f"the event loop at test_loop_monitor.py:{line} in stand_still" in told
    assert "Put what takes long into a step that is a plain `def`" in told


async def test_a_plain_step_may_block(listener: Listener) -> None:
    """It is in a thread: the loop goes on, and nobody complains."""
    go_on = threading.Event()

    @outlast.step
    def waits_in_a_thread() -> bool:
        return go_on.wait(20)

    @outlast.workflow
    async def is_patient() -> bool:
        return await waits_in_a_thread()

    async with outlast.App("memory:", workflows=[is_patient]) as app:
        run = await app.start(is_patient())
        assert (await run.status()).status == "running"
        go_on.set()
        assert await run.result() is True
    assert listener.heard == []
