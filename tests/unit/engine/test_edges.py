"""What users do that nobody told them to: calls in the wrong place, errors of odd kinds, deploys."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

import outlast
import outlast.sync
from outlast.errors import RunFailed, StepFailed, WorkflowMisuse
from outlast.model import Status
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualApp, app

ran: list[str] = []
apps: list[Any] = []
release = threading.Event()
begun = threading.Event()


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    ran.clear()
    apps.clear()
    release.clear()
    begun.clear()


# -- the app in workflow code ---------------------------------------------------------------------


@outlast.workflow
async def other() -> str:
    return "other"


@outlast.workflow
async def calls_its_app(what: str) -> Any:
    opened: VirtualApp = apps[0]
    if what == "start":
        return await opened.start(other())
    if what == "signal":
        return await opened.get("x").signal("y")
    return await opened.get("x").status()


@pytest.mark.parametrize("what", ["start", "signal", "get"])
async def test_workflow_code_cannot_call_its_app(what: str) -> None:
    """It would be done again in every replay, and on the wrong loop."""
    async with app(calls_its_app, other) as virtual:
        apps.append(virtual)
        with pytest.raises(RunFailed, match=r"workflow code called"):
            await (await virtual.start(calls_its_app(what))).result()
        assert await (await virtual.start(other())).result() == "other"


@outlast.sync.workflow
def calls_its_sync_app() -> Any:
    return apps[0].get("x").status()


def test_plain_workflow_code_cannot_either() -> None:
    """There it would wait for itself."""
    with outlast.sync.App("memory:", workflows=[calls_its_sync_app]) as opened:
        apps.append(opened)
        with pytest.raises(RunFailed, match="workflow code called its app"):
            opened.start(calls_its_sync_app()).result(timeout=20)


async def test_a_plain_function_is_no_workflow() -> None:
    """And that is said."""
    async with app(other) as virtual:
        with pytest.raises(WorkflowMisuse, match=r"(?i)decorate"):
            await virtual.start(lambda: None)  # type: ignore[call-overload]


# -- children -------------------------------------------------------------------------------------


@outlast.workflow
async def grandparent() -> str:
    return await parent()


@outlast.workflow
async def parent() -> str:
    async def inside() -> str:
        return await other()

    return await inside()


async def test_children_that_code_names_need_not_be_listed() -> None:
    """Nor their children."""
    async with app(grandparent) as virtual:
        assert await (await virtual.start(grandparent())).result() == "other"


# -- errors of odd kinds --------------------------------------------------------------------------


class Odd(BaseException):
    """Not an Exception."""


@outlast.step
async def raises(kind: str) -> None:
    if kind == "odd":
        raise Odd("very")
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


@outlast.step
def raises_in_a_thread() -> None:
    raise Odd("very")


@pytest.mark.parametrize("kind", ["odd", "cancelled", "thread"])
@pytest.mark.parametrize("mapped", [False, True])
async def test_whatever_a_step_raises_is_its_outcome(kind: str, mapped: bool) -> None:
    """Also what `except Exception` does not catch."""

    @outlast.workflow
    async def tries() -> str:
        try:
            if kind == "thread":
                await raises_in_a_thread()
            elif mapped:
                await outlast.map(raises, [kind])
            else:
                await raises(kind)
        except Exception as failure:  # noqa: BLE001
            return type(failure).__name__
        return "nothing"

    async with app(tries) as virtual:
        result = await (await virtual.start(tries())).result()
    assert result in ("StepFailed", "MapFailed")


@outlast.step(at_most_once=True)
async def delicate(number: int) -> int:
    return number


async def test_a_delicate_step_is_nothing_for_a_map() -> None:
    """Which begins again what a crash has cut off."""

    @outlast.workflow
    async def maps() -> list[int]:
        return await outlast.map(delicate, [1])

    async with app(maps) as virtual:
        with pytest.raises(RunFailed, match="at_most_once"):
            await (await virtual.start(maps())).result()


@outlast.step(process=True, retry=outlast.Retry(attempts=3, delay=0, give_up_on=(OSError,)))
def refuses() -> None:
    """A kind that is given up, in a process of its own."""
    raise ConnectionError(f"process {os.getpid()}")


async def test_an_error_from_another_process_keeps_its_kind() -> None:
    """For the policy of the step, and for who reads the history."""

    @outlast.workflow
    async def tries() -> str:
        try:
            await refuses()
        except StepFailed as failure:
            return f"{failure.error_type} {failure.attempts}"
        return "nothing"

    async with app(tries) as virtual:
        assert await (await virtual.start(tries())).result() == "ConnectionError 1"


# -- deploys and retries --------------------------------------------------------------------------


@outlast.step
def holds() -> str:
    ran.append("begins")
    begun.set()
    release.wait(20)
    ran.append("ends")
    return "held"


@outlast.workflow
async def waits_for_a_thread() -> str:
    return await holds()


@pytest.mark.proves("I30")
async def test_a_step_in_a_thread_is_finished_before_its_app_closes() -> None:
    """Nobody can stop it, so nobody begins it again beside it."""
    async with MemoryStore() as store:
        async with outlast.App(store, workflows=[waits_for_a_thread]) as first:
            await first.start(waits_for_a_thread(), id="it")
            await asyncio.to_thread(begun.wait, 20)
            asyncio.get_running_loop().call_later(0.05, release.set)
        assert ran == ["begins", "ends"]
        async with outlast.App(store, workflows=[waits_for_a_thread]) as second:
            assert await second.get("it").result(timeout=20) == "held"
    assert ran == ["begins", "ends"]


@outlast.step
async def pays() -> str:
    ran.append(outlast.step_info().idempotency_key)
    if len(ran) == 1:
        raise ConnectionError("the answer was lost")
    return "paid"


@outlast.workflow
async def buys() -> str:
    return await pays()


@pytest.mark.proves("I9")
async def test_a_retried_run_keeps_the_keys_of_what_it_was_doing() -> None:
    """The bank may have it already; a fork is another purchase."""
    async with app(buys) as virtual:
        run = await virtual.start(buys(), id="it")
        with pytest.raises(RunFailed):
            await run.result()
        await virtual.get("it").retry()
        assert await run.result() == "paid"
        assert ran[0] == ran[1]
        fork = await virtual.get("it").fork("pays")
        assert await fork.result() == "paid"
        assert ran[2] != ran[0]


async def test_a_terminated_run_stops_at_once() -> None:
    """Its step is cancelled, and whoever waits for it hears of it."""
    running, stopped = asyncio.Event(), asyncio.Event()

    @outlast.step
    async def endless() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @outlast.workflow
    async def goes_on() -> None:
        await endless()

    async with outlast.App("memory:", workflows=[goes_on]) as opened:
        run = await opened.start(goes_on(), id="it")
        await asyncio.wait_for(running.wait(), 20)
        await opened.get("it").terminate()
        await asyncio.wait_for(stopped.wait(), 20)
        assert (await run.status()).status is Status.CANCELLED


# -- plain workflows ------------------------------------------------------------------------------


@outlast.sync.step
def double(number: int) -> int:
    ran.append(f"double {number}")
    return 2 * number


@outlast.sync.workflow
def plainly() -> list[int]:
    def twice(number: int) -> int:
        return double(double(number))

    def grow(number: int) -> int | outlast.sync.Stop[int]:
        return outlast.sync.Stop(number) if number > 20 else double(number)

    quadruple = outlast.sync.scope(twice, 3)
    grown = outlast.sync.loop(grow, quadruple)
    outlast.sync.sleep(days=1)
    return [quadruple, grown]


async def test_a_plain_workflow_has_scopes_and_loops() -> None:
    """With plain bodies, which are not run again when they are finished."""
    async with app(plainly) as virtual:
        run = await virtual.start(plainly(), id="p")
        assert await run.result() == [12, 24]
        assert ran == ["double 3", "double 6", "double 12"]
        types = [event.type for event in await virtual.get("p").history()]
        assert types.count("scope.completed") == 1
        assert types.count("loop.iterated") == 1
