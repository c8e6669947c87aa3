"""A replay compares what a step was asked with what history says that it was asked."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import pytest

import outlast
from outlast.errors import Mismatch
from outlast.model import Status
from outlast.testing import VirtualClock, app, replay
from outlast.testing.virtual_app import VirtualApp
from outlast.urls import resolve

numbers = itertools.count()
orders = [["a", "b"], ["b", "a"]]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new store is."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@outlast.step
async def send(token: int) -> int:
    return token


@outlast.step
async def label(tags: dict[str, int]) -> int:
    return len(tags)


@outlast.workflow
async def careless() -> int:
    sent = await send(next(numbers))  # another one in each replay
    await outlast.wait_for_signal("go")
    return sent


@outlast.workflow
async def careful() -> int:
    given = dict.fromkeys(orders[next(numbers) % 2], 1)  # equal, in another order
    count = await label(given)
    await outlast.wait_for_signal("go")
    return count


async def two_processes(url: str, workflow: str, *, strict: bool) -> tuple[Status, str, list[str]]:
    """The status of a run after another process has replayed it and got its signal, its error and events."""
    clock = VirtualClock()
    async with resolve(url, clock=clock) as store:
        async with app(careless, careful, store=store, clock=clock) as first:
            await first.start(workflow, id="r")
            await clock.settle()
        second: VirtualApp
        async with app(careless, careful, store=store, clock=clock, strict_replay=strict) as second:
            await second.get("r").signal("go")
            await clock.settle()
            run = await second.get("r").status()
            return (
                run.status,
                run.error or "",
                [event.type for event in await second.get("r").history()],
            )


async def test_a_changed_argument_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once a replay; the recorded result counts, and the arguments, which may be secret, are not shown."""
    with caplog.at_level(logging.WARNING, "outlast.engine"):
        status, _, _ = await two_processes(url, "careless", strict=False)
    assert status is Status.COMPLETED
    lines = [line.getMessage() for line in caplog.records if "other arguments" in line.getMessage()]
    assert len(lines) == 1
    assert "'send'" in lines[0]


async def test_a_strict_replay_parks_the_run(url: str) -> None:
    """Nothing is lost: the signal waits, and the run goes on when the code fits."""
    status, error, events = await two_processes(url, "careless", strict=True)
    assert status is Status.HALTED
    assert "step.started 'send' with other arguments" in error
    assert "signal.received" not in events


async def test_values_are_compared_not_text(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """A dict in another order is the same argument, also in a strict replay."""
    status, _, _ = await two_processes(url, "careful", strict=True)
    assert status is Status.COMPLETED
    assert "other arguments" not in caplog.text


async def test_replay_in_tests_is_strict() -> None:
    """`testing.replay` finds workflow code whose arguments are not the same twice."""
    async with app(careless) as virtual:
        run = await virtual.start(careless(), id="r")
        await run.signal("go")
        await run.result()
        with pytest.raises(Mismatch, match="other arguments"):
            replay(careless, await virtual.get("r").history())
