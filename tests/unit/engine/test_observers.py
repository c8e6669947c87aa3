"""Watching: logs that say where they are from, once; and whoever reads along."""

from __future__ import annotations

import logging

import pytest

import outlast
import outlast.sync
from outlast.errors import RunFailed
from outlast.model import Commit, Committed
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app, crash_everywhere
from outlast.testing import sleep as takes

log = outlast.get_logger("shop")


@outlast.step(retry=outlast.Retry(attempts=2))
async def pack(thing: str) -> str:
    log.info("packing %s, 100%%", thing)
    await takes(1)
    if outlast.step_info().attempt == 1:
        raise ConnectionError("no tape")
    return f"packed {thing}"


@outlast.sync.step
def label(thing: str) -> str:
    log.warning("labelling")
    return thing


@outlast.workflow
async def ship(thing: str) -> str:
    log.info("before")
    packed = await pack(thing)
    log.info("after %s", packed)
    await outlast.sleep(days=2)
    log.info("days later")
    return packed


def said(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == name]


async def test_a_line_says_where_it_is_from_and_a_replay_is_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In its text and in the fields of its record."""
    caplog.set_level(logging.INFO)
    async with app(ship) as virtual:
        run = await virtual.start(ship("a 50% lamp"), id="order-1")
        await run.result()
    # It left memory for two days and was replayed: nothing is said twice.
    assert said(caplog, "shop") == [
        "before [run=order-1 workflow=ship]",
        "packing a 50% lamp, 100% [run=order-1 step=pack attempt=1]",
        "packing a 50% lamp, 100% [run=order-1 step=pack attempt=2]",
        "after packed a 50% lamp [run=order-1 workflow=ship]",
        "days later [run=order-1 workflow=ship]",
    ]
    record = next(record for record in caplog.records if record.name == "shop")
    assert (record.run, record.workflow) == ("order-1", "ship")  # type: ignore[attr-defined]
    assert record.funcName == "ship"


async def test_what_happens_to_runs_is_logged_in_one_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failed run is a warning; ids that could mislead are quoted."""
    caplog.set_level(logging.INFO)
    line = pack.definition.function.__code__.co_firstlineno + 5
    async with app(ship) as virtual:
        await (await virtual.start(ship("lamp"), id="order 2")).result()
    assert said(caplog, "outlast.runs") == [
        "workflow.started [run='order 2']",
        "step pack [run='order 2'] attempt 1 raised",
        (
            "step.failed pack [run='order 2'] attempt 1, will be tried again: "
            f"ConnectionError: no tape at test_observers.py:{line} in pack"
        ),
        "workflow.completed [run='order 2']",
    ]
    caplog.clear()
    caplog.set_level(logging.WARNING)

    @outlast.workflow
    async def broken() -> None:
        raise LookupError("nothing there")

    async with app(broken) as virtual:
        with pytest.raises(RunFailed):
            await (await virtual.start(broken(), id="b")).result()
    [failure] = said(caplog, "outlast.runs")
    assert failure.startswith(
        "workflow.failed [run=b]: LookupError: nothing there\n  at test_observers.py:"
    )
    assert failure.endswith(" in broken\nLookupError: nothing there")


async def test_a_watcher_sees_each_commit_once_and_may_fail() -> None:
    """What it sees is history, in order."""
    seen: list[str] = []

    def watch(commit: Commit, committed: Committed) -> None:
        seen.extend(event.type for event in commit.events)
        raise RuntimeError("a watcher's own problem")

    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(ship, store=store, clock=clock, observers=[watch]) as virtual:
        run = await virtual.start(ship("lamp"), id="w")
        assert await run.result() == "packed lamp"
        assert seen == [event.type for event in await virtual.get("w").history()]


async def test_outside_of_everything_it_is_a_plain_logger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is added where there is no run."""
    caplog.set_level(logging.INFO)
    log.info("just so")
    assert label.definition.function("x") == "x"
    assert said(caplog, "shop") == ["just so", "labelling"]


async def test_in_threads_too(caplog: pytest.LogCaptureFixture) -> None:
    """Plain workflows and plain steps know where they are as well."""
    caplog.set_level(logging.INFO)

    @outlast.sync.workflow
    def plain() -> str:
        log.info("in a thread")
        return label("x")

    async with app(plain) as virtual:
        await (await virtual.start(plain(), id="t")).result()
    assert said(caplog, "shop") == [
        "in a thread [run=t workflow=plain]",
        "labelling [run=t step=label attempt=1]",
    ]


async def test_a_crash_loses_no_line() -> None:
    """What a dead process had not made durable is said again by the next one."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:

        def observed() -> list[str]:
            return sorted({line for line in lines if "attempt" not in line})

        sweep = await crash_everywhere(ship, "lamp", setup=lines.clear, observe=observed)
        assert len(sweep.ending.observed) == 3
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
