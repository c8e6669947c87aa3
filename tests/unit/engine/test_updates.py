"""Updates: what others ask of a run, and the answer they get."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Raw

import outlast
import outlast.sync
from outlast.errors import NotFound, RunCancelled, UpdateFailed, WorkflowMisuse
from outlast.model import Event, EventType, Status
from outlast.model.event import payload_of
from outlast.model.json import from_json
from outlast.model.payloads import UpdateCompleted, WorkflowStarted
from outlast.testing import app, crash_everywhere
from outlast.testing import sleep as takes

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    ran.clear()


@dataclass
class Address:
    street: str
    number: int


@outlast.step
async def check(address: Address) -> bool:
    ran.append(address.street)
    await takes(10)
    return address.street != "nowhere"


@outlast.workflow
async def delivery(address: Address) -> str:
    @outlast.on_update
    async def redirect(to: Address) -> str:
        nonlocal address
        if not await check(to):
            raise LookupError(f"nobody lives in {to.street}")
        old, address = address, to
        return f"{old.street} → {to.street}"

    @outlast.on_update(name="where")
    def tell() -> Address:
        return address

    await outlast.wait_for_signal("go")
    return f"delivered to {address.street} {address.number}"


def told(history: list[Event]) -> list[str]:
    return [f"{event.type} {event.step_name}".strip() for event in history]


async def test_an_update_is_answered() -> None:
    """With what its handler returns, after the steps that it calls; all of it is history."""
    async with app(delivery) as virtual:
        run = await virtual.start(delivery(Address("High Street", 1)), id="parcel")
        assert (
            await run.update("redirect", Address("Mill ConnectionWorker", 7))
            == "High Street → Mill ConnectionWorker"
        )
        assert await run.update("where", type=Address) == Address("Mill ConnectionWorker", 7)
        await run.signal("go")
        assert await run.result() == "delivered to Mill ConnectionWorker 7"
        assert told(await virtual.get("parcel").history()) == [
            "workflow.started",
            "signal.waiting signal:go",
            "update.accepted update:redirect#1",
            "step.started update:redirect#1/check",
            "step.completed update:redirect#1/check",
            "update.completed update:redirect#1",
            "update.accepted update:where#1",
            "update.completed update:where#1",
            "signal.received signal:go",
            "workflow.completed",
        ]


async def test_an_error_is_an_answer_and_the_run_goes_on() -> None:
    """Whatever a handler raises, and what does not fit it, is for who asked."""
    async with app(delivery) as virtual:
        run = await virtual.start(delivery(Address("High Street", 1)))
        with pytest.raises(UpdateFailed, match="LookupError: nobody lives in nowhere") as raised:
            await run.update("redirect", Address("nowhere", 0))
        assert raised.value.update == "redirect"
        with pytest.raises(UpdateFailed, match="redirect"):
            await run.update("redirect", {"street": 7})
        await run.signal("go")
        assert await run.result() == "delivered to High Street 1"


async def test_with_a_key_it_is_done_once_and_answered_always() -> None:
    """Also when the run is over."""
    async with app(delivery) as virtual:
        run = await virtual.start(delivery(Address("High Street", 1)))
        for _ in range(3):
            answer = await run.update(
                "redirect", Address("Mill ConnectionWorker", 7), dedup="form 12"
            )
            assert answer == "High Street → Mill ConnectionWorker"
        assert ran == ["Mill ConnectionWorker"]
        await run.signal("go")
        await run.result()
        again = await run.update("redirect", Address("Mill ConnectionWorker", 7), dedup="form 12")
        assert again == "High Street → Mill ConnectionWorker"
        with pytest.raises(UpdateFailed, match="completed and has not answered"):
            await run.update("redirect", Address("Mill ConnectionWorker", 7))


@outlast.workflow
async def late() -> list[str]:
    got: list[str] = []
    await outlast.sleep(60)

    @outlast.on_update
    async def add(word: str) -> int:
        got.append(word)
        await outlast.sleep(30)
        return len(got)

    await outlast.sleep(1)
    return got


async def test_one_that_comes_early_waits_and_one_that_is_accepted_is_finished() -> None:
    """The run does not end before."""
    async with app(late) as virtual:
        run = await virtual.start(late())
        answers = await asyncio.gather(run.update("add", "a"), run.update("add", "b"))
        assert sorted(answers) == [2, 2]
        assert await run.result() == ["a", "b"]


@outlast.workflow
async def counter(total: int = 0) -> int:
    @outlast.on_update
    async def add(amount: int) -> int:
        nonlocal total
        total += amount
        return total

    await outlast.sleep(days=1)
    if total < 10:
        outlast.continue_as_new(counter(total))
    return total


async def test_an_answer_outlives_continue_as_new() -> None:
    """Who asks again gets it in the next life too, and nothing is done twice."""
    async with app(counter) as virtual:
        run = await virtual.start(counter(), id="c")
        assert await run.update("add", 3, int, dedup="first") == 3
        uid = (await virtual.get("c").status()).uid
        while (await virtual.get("c").status()).uid == uid:
            await virtual.clock.sleep(3600)
        assert await run.update("add", 3, int, dedup="first") == 3
        started = payload_of((await virtual.get("c").history())[0])
        assert isinstance(started, WorkflowStarted)
        assert [from_json(one, UpdateCompleted).output for one in started.answers] == [Raw(b"3")]
        await run.update("add", 10)
        assert await run.result() == 13


async def test_a_cancelled_run_answers_what_it_had_accepted() -> None:
    """With an error, before it ends."""

    @outlast.workflow
    async def stuck() -> None:
        @outlast.on_update
        async def never() -> None:
            await outlast.wait_for_signal("nothing")

        await outlast.wait_for_signal("nothing either")

    async with app(stuck) as virtual:
        run = await virtual.start(stuck())
        asked = asyncio.ensure_future(run.update("never"))
        while not any(
            e.type == EventType.UPDATE_ACCEPTED for e in await virtual.get(run.id).history()
        ):
            await virtual.clock.sleep(1)
        await run.cancel()
        with pytest.raises(UpdateFailed, match="the run has ended"):
            await asked
        with pytest.raises(RunCancelled):
            await run.result()


async def test_nobody_answers() -> None:
    """A name without a handler costs the caller its patience and the run nothing."""
    async with app(delivery) as virtual:
        run = await virtual.start(delivery(Address("High Street", 1)))
        with pytest.raises(TimeoutError, match="on_update"):
            await run.update("unheard-of", timeout=5)
        with pytest.raises(NotFound):
            await virtual.get("no such run").update("redirect")
        assert (await run.status()).status is Status.WAITING


async def test_outside_a_workflow_it_says_where_it_belongs() -> None:
    """Before anything else happens."""
    with pytest.raises(WorkflowMisuse, match="on_update"):

        @outlast.on_update
        def handler() -> None: ...


@outlast.sync.step
def weigh(thing: str) -> int:
    ran.append(thing)
    return len(thing)


@outlast.sync.workflow
def scales() -> int:
    total = 0

    @outlast.sync.on_update
    def put(thing: str) -> int:
        nonlocal total
        total += weigh(thing)
        return total

    outlast.sync.wait_for_signal("done")
    return total


async def test_a_plain_workflow_has_plain_handlers() -> None:
    """They call steps as it does, and block as it does."""
    async with app(scales) as virtual:
        run = await virtual.start(scales())
        assert await run.update("put", "apple") == 5
        assert await run.update("put", "fig") == 8
        await run.signal("done")
        assert await run.result() == 8


async def test_updates_survive_a_crash_anywhere() -> None:
    """At every call of the store: same outcome, same answer."""

    async def redirect(run: outlast.RunHandle[Any]) -> None:
        answer = await run.update("redirect", Address("Mill ConnectionWorker", 7), dedup="a")
        assert answer == "High Street → Mill ConnectionWorker"

    async def go(run: outlast.RunHandle[Any]) -> None:
        await run.signal("go", dedup="b")

    sweep = await crash_everywhere(
        delivery, Address("High Street", 1), actions=[redirect, go], setup=ran.clear
    )
    assert sweep.ending.runs["run"].result == '"delivered to Mill ConnectionWorker 7"'
    assert sweep.crashes > 10
