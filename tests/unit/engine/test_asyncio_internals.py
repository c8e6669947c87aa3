"""asyncio's private functions do what a run's own loop needs, on the Python that runs these tests."""

from __future__ import annotations

import asyncio
import gc
import re
import warnings
from pathlib import Path

import pytest

import outlast
from outlast.engine.replay import event_loop
from outlast.engine.replay.event_loop import RunLoop, drop_silently, running_loop

SOURCE = Path(outlast.__file__).parent


async def test_a_task_of_a_run_is_current_inside_and_the_programs_own_outside() -> None:
    """Entering a run's loop puts the program's loop and task aside; leaving puts both back."""
    outer_loop, outer_task = asyncio.get_running_loop(), asyncio.current_task()
    seen: list[object] = []
    loop = RunLoop()

    async def body() -> str:
        seen.extend((running_loop(), asyncio.current_task()))
        await asyncio.sleep(0)
        return "done"

    with loop.inside:
        task = loop.create_task(body())
        loop.drain(0.0)

    assert seen == [loop, task]
    assert task.result() == "done"
    assert asyncio.get_running_loop() is outer_loop
    assert asyncio.current_task() is outer_task


async def test_a_run_inside_a_run_puts_the_outer_task_back() -> None:
    """A second loop that is entered while a task of the first one runs leaves that task current."""
    seen: list[object] = []
    outer, inner = RunLoop(), RunLoop()

    async def nothing() -> None:
        seen.append(asyncio.current_task())

    async def body() -> None:
        mine = asyncio.current_task()
        with inner.inside:
            task = inner.create_task(nothing())
            inner.drain(0.0)
        seen.append(task)
        seen.append(asyncio.current_task() is mine)

    with outer.inside:
        outer.create_task(body())
        outer.drain(0.0)

    assert seen[0] is seen[1]
    assert seen[2] is True


def test_a_loop_can_be_entered_where_none_runs() -> None:
    """Replay needs no running loop: outside there is none, and there is none afterwards."""
    loop = RunLoop()
    seen: list[object] = []
    with loop.inside:
        seen.append(running_loop())
    seen.append(running_loop())
    assert seen == [loop, None]


async def test_a_dropped_task_is_collected_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Code that leaves memory while it waits is no mistake that asyncio should report."""
    loop = RunLoop()

    async def wait() -> None:
        await loop.create_future()

    with loop.inside:
        task = loop.create_task(wait())
        loop.drain(0.0)
        drop_silently(task)
        task.get_coro().close()
        loop._tasks.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del task
        gc.collect()
    assert "destroyed" not in caplog.text


def test_private_names_of_asyncio_stand_in_one_module() -> None:
    """Whatever may change without notice is in `event_loop` alone."""
    private = re.compile(r"\basyncio(?:\.\w+)*\._[a-z]|_log_destroy_pending|_swap_current_task")
    found = {
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if private.search(file.read_text(encoding="utf-8"))
    }
    assert found == {str(Path(event_loop.__file__).relative_to(SOURCE))}
