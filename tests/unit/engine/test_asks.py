"""Questions to people and what else happens to their run: crashes at every call, parked code, a move, a time limit."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import outlast
from outlast.client import Client
from outlast.errors import AlreadyAnswered, InvalidValue, WorkflowMisuse
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app, crash_everywhere
from outlast.transfer import move

notified: list[str] = []


@outlast.step
async def notify(ask: outlast.Ask, reason: str) -> None:
    notified.append(f"{ask.to} {reason}")


@outlast.workflow
async def two_questions() -> list[str]:
    return list(
        await asyncio.gather(
            outlast.ask(
                "one", str, to="ann", due=timedelta(hours=1), escalate="bob", notify=notify
            ),
            outlast.scope(asks_two),
        )
    )


async def asks_two() -> str:
    return await outlast.halt("two", str)


async def answer(run: outlast.RunHandle[Any], name: str) -> None:
    """Answer a question by name, unless a crash came after the first try."""
    for ask in await run.asks():
        if ask.name == name:
            await run.resume(f"to {name or 'halt'}", ask=ask.id, by="ann")


async def test_a_crash_anywhere_changes_nothing() -> None:
    """Before and after every call of the store, with snapshots and evicted: each answer reaches its question."""
    sweep = await crash_everywhere(
        two_questions,
        setup=notified.clear,
        actions=[lambda run: answer(run, ""), lambda run: answer(run, "one")],
    )
    assert sweep.ending.runs["run"].result == '["to one","to halt"]'


async def test_the_timeout_of_a_result_names_the_question_and_whom() -> None:
    """What it waits for, and whom, without a look elsewhere."""
    async with app(two_questions) as virtual:
        run = await virtual.start(two_questions(), id="q")
        await virtual.clock.settle()
        with pytest.raises(TimeoutError, match="it asks 'ann' 'one', it asks a person a question"):
            await run.result(timeout=5)


async def test_a_question_of_parked_code_is_answered() -> None:
    """The answer is accepted while no code can continue the run, and used by code that can."""

    @outlast.workflow(name="asks")
    async def good() -> str:
        return await outlast.ask("name", str)

    @outlast.workflow(name="asks")
    async def wrong() -> str:
        await outlast.sleep(1)
        return "wrong"

    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(good, store=store, clock=clock) as virtual:
        await virtual.start(good(), id="q")
        await clock.settle()
        [ask] = await virtual.client.asks.list()
    async with app(wrong, store=store, clock=clock) as virtual:
        await virtual.client.asks.answer(ask.id, "Ada", by="ann")
        await clock.settle()
        assert (await virtual.get("q").status()).wait_kind == "mismatch"
        with pytest.raises(AlreadyAnswered, match="ann"):
            await virtual.client.asks.answer(ask.id, "Bo")
    async with app(good, store=store, clock=clock) as virtual:
        await virtual.get("q").resume()
        assert await virtual.get("q").result() == "Ada"


async def test_a_question_moves_with_its_run() -> None:
    """It is open in the other store alone, under the same id."""
    clock = VirtualClock()
    old, new = MemoryStore(clock=clock), MemoryStore(clock=clock)
    async with old, new:
        async with app(two_questions, store=old, clock=clock) as virtual:
            await virtual.start(two_questions(), id="q")
            await clock.settle()
            ids = [ask.id for ask in await virtual.client.asks.list()]
        await move(old, new, address="new")
        assert await Client(old).asks.list() == []
        assert [ask.id for ask in await Client(new).asks.list()] == ids
        await Client(new).asks.answer(ids[0], "yes", by="ann")
        async with app(two_questions, store=new, clock=clock) as virtual:
            await clock.settle()
            assert [ask.id for ask in await virtual.client.asks.list()] == ids[1:]
            await virtual.get("q").resume("no")
            assert await virtual.get("q").result() == ["yes", "no"]


async def test_only_workflow_code_asks() -> None:
    """A step has no place where an answer could wait, and neither has a compensation."""

    @outlast.step(retry=outlast.Retry(attempts=1))
    async def asks() -> str:
        return await outlast.ask("name", str)

    @outlast.workflow
    async def calls() -> str:
        return await asks()

    async with app(calls) as virtual:
        run = await virtual.start(calls())
        with pytest.raises(outlast.errors.RunFailed, match="works in a workflow only"):
            await run.result()
    with pytest.raises(WorkflowMisuse, match="works in a workflow only"):
        await outlast.ask("name", str)


@pytest.mark.parametrize(
    "options",
    [
        {"remind": timedelta(days=1)},
        {"remind": timedelta(0), "notify": notify},
        {"escalate": "cfo"},
        {"due": 3},
    ],
)
async def test_what_cannot_be_is_refused(options: dict[str, Any]) -> None:
    """A reminder without a step to call or without a time, an escalation without a due time, a due time that is none."""

    @outlast.workflow
    async def asks() -> str:
        try:
            return await outlast.ask("name", str, **options)
        except InvalidValue as error:
            return str(error)

    async with app(asks) as virtual:
        run = await virtual.start(asks())
        assert next(iter(options)) in await run.result(timeout=10)
