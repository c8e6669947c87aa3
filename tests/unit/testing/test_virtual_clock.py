"""The virtual clock: it jumps when all is idle, and only then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import RunFailed
from outlast.model import Status
from outlast.testing import Stuck, VirtualClock, app
from outlast.testing.virtual_clock import START


@outlast.step
async def add(left: int, right: int) -> int:
    return left + right


@outlast.workflow
async def month(number: int) -> int:
    await outlast.sleep(days=30)
    return await add(number, 1)


@outlast.workflow
def plain_month(number: int) -> int:
    outlast.sleep(days=30)  # type: ignore[unused-coroutine]
    result: Any = add(number, 1)
    return result  # type: ignore[no-any-return]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/test.db"


@pytest.mark.proves("I15")
@pytest.mark.parametrize("workflow", [month, plain_month], ids=["async", "plain"])
async def test_thirty_days_pass_in_a_few_leaps(url: str, workflow: Any) -> None:
    """A workflow that sleeps for a month is tested at once, and wakes on time, not earlier."""
    async with app(workflow, store=url) as testing:
        run = await testing.start(workflow(41))
        assert await run.result() == 42
        history = await testing.get(run.id).history()
        assert testing.clock.jumps < 10
    fired = next(event for event in history if event.type == "timer.fired")
    assert fired.timestamp == START + timedelta(days=30)


@pytest.mark.proves("I14")
async def test_everything_happens_in_the_same_order_every_time() -> None:
    """On the memory store two runs make the same events at the same virtual moments."""

    @outlast.step
    async def slow(clock_seconds: float) -> float:
        await clock.sleep(clock_seconds)
        return clock_seconds

    @outlast.workflow
    async def race() -> list[float]:
        return list(await asyncio.gather(*(slow(0.1 * n) for n in (3, 1, 2))))

    traces = []
    for _ in range(2):
        clock = VirtualClock()
        async with app(race, clock=clock) as testing:
            run = await testing.start(race())
            await run.result()
            history = await testing.get(run.id).history()
        traces.append([(event.type, event.step_name, event.timestamp) for event in history])
    assert traces[0] == traces[1]
    done = [key for type, key, _ in traces[0] if type == "step.completed"]
    assert done == ["1/slow", "2/slow", "0/slow"]


async def test_time_stands_still_while_a_thread_works() -> None:
    """A plain step in a thread holds the clock: its timeout does not come over it."""
    clock = VirtualClock()
    go_on = threading.Event()

    @outlast.step(timeout=5)
    def busy() -> str:
        asyncio.run_coroutine_threadsafe(later(), loop)
        go_on.wait()
        return clock.now().isoformat()

    async def later() -> None:
        for _ in range(1000):  # far more rounds than an idle loop takes to jump
            await asyncio.sleep(0)
        go_on.set()

    @outlast.workflow
    async def working() -> str:
        return await busy()

    loop = asyncio.get_running_loop()
    async with app(working, clock=clock) as testing:
        run = await testing.start(working())
        assert await run.result() == START.isoformat()


async def test_a_step_that_hangs_meets_its_timeout() -> None:
    """An async body that waits for what never comes does not hold the clock for ever."""

    @outlast.step(timeout=3600)
    async def hangs() -> None:
        await asyncio.Event().wait()

    @outlast.workflow
    async def hanging() -> None:
        await hangs()

    async with app(hanging, clock=VirtualClock(grace=0.001)) as testing:
        run = await testing.start(hanging())
        with pytest.raises(RunFailed, match="did not end within 3600 s"):
            await run.result()
        assert testing.clock.now() == START + timedelta(hours=1)


async def test_a_thread_that_hangs_meets_its_timeout() -> None:
    """A plain body that hangs holds the clock for as long as we have patience."""
    end = threading.Event()

    @outlast.step(timeout=3600)
    def hangs() -> None:
        end.wait()

    @outlast.workflow
    async def hanging() -> None:
        await hangs()

    try:
        async with app(hanging, clock=VirtualClock(patience=0.01, grace=0.001)) as testing:
            run = await testing.start(hanging())
            with pytest.raises(RunFailed, match="did not end within 3600 s"):
                await run.result()
    finally:
        end.set()


async def test_a_step_that_awaits_a_socket_gets_its_time() -> None:
    """A body that talks to a real socket ends before its timeout, which would come in no time."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        for _ in range(10):
            await asyncio.to_thread(lambda: None)  # somewhere else, for a while
        writer.write(b"pong\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    @outlast.step(timeout=1)
    async def ping() -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ping\n")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return line.decode().strip()

    @outlast.workflow
    async def calling() -> str:
        return await ping()

    async with server, app(calling, clock=VirtualClock(grace=0.0)) as testing:
        run = await testing.start(calling())
        assert await run.result() == "pong"


async def test_settle_lets_nothing_but_time_be_left() -> None:
    """After `settle` all that could happen now has happened, and no time has passed."""
    async with app(month) as testing:
        with testing.clock.hold():
            run = await testing.start(month(1))
            await testing.clock.settle()
            assert (await run.status()).status is Status.WAITING
            assert testing.clock.now() == START
        assert await run.result() == 2


async def test_a_test_that_sleeps_meets_the_run_in_the_middle() -> None:
    """Who sleeps on the clock in a test is woken in turn with the workflow."""
    async with app(month) as testing:
        run = await testing.start(month(1))
        await testing.clock.sleep(29 * 86400)
        assert (await run.status()).status is Status.WAITING
        await testing.clock.sleep(2 * 86400)
        assert (await run.status()).status is Status.COMPLETED


async def test_nothing_leaps_when_nobody_waits_for_time() -> None:
    """A run that waits for a signal alone leaves the clock where it is."""

    @outlast.workflow
    async def waiting() -> str:
        word: str = await outlast.wait_for_signal("word", str)
        return word

    async with app(waiting) as testing:
        run = await testing.start(waiting())
        await testing.clock.settle()
        assert (testing.clock.jumps, testing.clock.now()) == (0, START)
        await run.signal("word", "now")
        assert await run.result() == "now"


async def test_a_run_that_nobody_will_wake_is_told() -> None:
    """Who awaits the result of a run that waits for ever is told so, and for what it waits."""

    @outlast.workflow
    async def waiting() -> None:
        await outlast.wait_for_signal("word", str)

    async with app(waiting) as testing:
        testing.stuck_after = 1
        run = await testing.start(waiting(), id="lonely")
        with pytest.raises(Stuck, match=r"'lonely' is waiting \(signal\)"):
            await run.result()


async def test_result_with_a_timeout_ends_in_virtual_time() -> None:
    """`result(timeout=…)` of a run that waits for ever raises at the right virtual moment."""

    @outlast.workflow
    async def waiting() -> None:
        await outlast.wait_for_signal("word", str)

    async with app(waiting) as testing:
        run = await testing.start(waiting())
        with pytest.raises(TimeoutError):
            await run.result(timeout=600)
        assert testing.clock.now() == START + timedelta(seconds=600)


async def test_a_clock_may_go_from_loop_to_loop() -> None:
    """A clock whose last loop was closed in the middle of something works on the next."""
    clock = VirtualClock()

    def in_a_loop_of_its_own(make: Callable[[], Any]) -> None:
        asyncio.run(make())

    async def abandoned() -> None:
        sleeping = asyncio.ensure_future(clock.sleep(5))
        await asyncio.sleep(0)
        del sleeping

    await asyncio.to_thread(in_a_loop_of_its_own, abandoned)
    await clock.sleep(10)
    assert clock.now() == START + timedelta(seconds=10)
