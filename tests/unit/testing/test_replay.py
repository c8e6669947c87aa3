"""Replay of stored histories against the present code."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidValue, Mismatch, NotFound, RunFailed
from outlast.model import Event
from outlast.model.payloads import WorkflowCompleted
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app, assert_replays, replay

ran: list[str] = []


@outlast.step
async def pay(amount: int) -> str:
    ran.append("pay")
    return f"paid {amount}"


@outlast.step
async def ship(what: str) -> str:
    ran.append("ship")
    return f"shipped {what}"


@outlast.workflow
async def shop(amount: int) -> str:
    paid = await pay(amount)
    await outlast.sleep(days=1)
    return await ship(paid)


@outlast.workflow(name="shop")
async def shop_shipping_first(amount: int) -> str:
    sent = await ship(str(amount))
    return await pay(len(sent))


@outlast.workflow(name="shop")
async def shop_with_one_more(amount: int) -> str:
    paid = await pay(amount)
    await outlast.sleep(days=1)
    sent = await ship(paid)
    return await ship(sent)


@outlast.workflow(name="shop")
async def shop_without_shipping(amount: int) -> str:
    paid = await pay(amount)
    await outlast.sleep(days=1)
    return paid


@outlast.workflow(name="shop")
async def shop_that_fails(amount: int) -> str:
    paid = await pay(amount)
    await outlast.sleep(days=1)
    raise ValueError(await ship(paid))


@outlast.workflow(name="shop")
def plain_shop(amount: int) -> Any:
    paid: Any = pay(amount)
    outlast.sleep(days=1)  # type: ignore[unused-coroutine]
    return ship(paid)


@outlast.workflow
async def lottery() -> str:
    if outlast.random().random() < 0.5:
        return await pay(1)
    return await ship("nothing")


asked: list[int] = []


@outlast.workflow
async def goes_through_a_set() -> list[str]:
    # So that the tasks lie in memory in another order each time.
    clutter = [bytearray(random.randrange(5000)) for _ in range(50)]
    tasks = []
    for number in range(8):
        tasks.append(asyncio.create_task(pay(number)))
        del clutter[random.randrange(len(clutter))]
    done, _ = await asyncio.wait(tasks)
    asked[:] = [tasks.index(task) for task in done]
    return [await ship(task.result()) for task in done]


@outlast.workflow
async def takes_coroutines_as_they_come() -> list[str]:
    return [await one for one in asyncio.as_completed([pay(1)])]


async def recorded() -> list[Event]:
    async with app(shop) as testing:
        run = await testing.start(shop(5))
        await run.result()
        history = await testing.get(run.id).history()
    ran.clear()
    return history


@pytest.mark.proves("I14")
@pytest.mark.parametrize("workflow", [shop, plain_shop], ids=["async", "plain"])
async def test_the_same_code_replays(workflow: Any) -> None:
    """A finished history replays to the same end, and no step runs."""
    replayed = replay(workflow, await recorded())
    assert (replayed.waits_for, replayed.asks, ran) == ([], [], [])
    assert isinstance(replayed.ended, WorkflowCompleted)
    assert bytes(replayed.ended.output or b"") == b'"shipped paid 5"'


@pytest.mark.proves("I14")
@pytest.mark.parametrize(
    ("workflow", "history", "code"),
    [
        (shop_shipping_first, "2 step.started 'pay'", "step.started 'ship'"),
        (shop_with_one_more, "8 workflow.completed", "step.started 'ship#2'"),
        (shop_without_shipping, "6 step.started 'ship'", "nothing more"),
        (shop_that_fails, "8 workflow.completed", "workflow.failed"),
    ],
    ids=["other order", "one more", "one less", "other end"],
)
async def test_changed_code_shows_both_sides(workflow: Any, history: str, code: str) -> None:
    """Code that asks for something else, more, or less is a mismatch that shows both."""
    with pytest.raises(Mismatch) as mismatch:
        replay(workflow, await recorded())
    assert history in mismatch.value.recorded
    assert code in mismatch.value.asked


@pytest.mark.proves("I14")
async def test_an_open_history_tells_where_the_code_is() -> None:
    """A run that has not ended replays to what it waits for; new code may ask for more there."""
    history = (await recorded())[:4]
    assert [event.type for event in history][-1] == "timer.started"
    replayed = replay(shop, history)
    assert (replayed.ended, replayed.waits_for, replayed.asks) == (None, ["timer"], [])
    assert replay(shop, history[:1]).asks == ["step.started 'pay'"]


@pytest.mark.proves("I14")
async def test_a_set_of_tasks_is_gone_through_in_one_order() -> None:
    """What `asyncio.wait` hands out comes in the same order live and in every replay, so that no
    task gets what belongs to another."""
    async with app(goes_through_a_set) as testing:
        run = await testing.start(goes_through_a_set())
        await run.result()
        history = await testing.get(run.id).history()
    live = list(asked)
    for _ in range(10):
        replay(goes_through_a_set, history)
        assert asked == live


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.proves("I14")
async def test_coroutines_that_would_be_shuffled_are_refused() -> None:
    """`as_completed` puts coroutines into a set before they are tasks: their order is lost."""
    async with app(takes_coroutines_as_they_come) as testing:
        run = await testing.start(takes_coroutines_as_they_come())
        with pytest.raises(RunFailed, match="create them yourself"):
            await run.result()


async def test_a_history_must_have_its_beginning() -> None:
    """Half a history cannot be replayed, and says so."""
    for part in ([], (await recorded())[1:]):
        with pytest.raises(InvalidValue, match=r"workflow\.started"):
            replay(shop, part)


@pytest.mark.proves("I14")
async def test_all_runs_of_a_store_replay(tmp_path: Path) -> None:
    """All runs of some workflows, or those named, are replayed from a store or a URL."""
    url = f"sqlite:///{tmp_path}/production.db"
    async with app(shop, lottery, store=url) as testing:
        for number in range(3):
            await (await testing.start(shop(number), id=f"order-{number}")).result()
        for _ in range(8):
            await (await testing.start(lottery())).result()
    ran.clear()
    assert await assert_replays(url, shop) == 3
    assert await assert_replays(url, shop, run_ids=["order-1"]) == 1
    # Chance is drawn from the uid of each run, so it falls as it did.
    assert await assert_replays(url, lottery) == 8
    assert ran == []
    with pytest.raises(Mismatch, match="order-"):
        await assert_replays(url, shop_shipping_first)


async def test_runs_that_cannot_be_replayed_are_named() -> None:
    """A run that is not there, or whose workflow was not given, is an error."""
    store = MemoryStore(clock=VirtualClock())
    async with app(shop, store=store) as testing:
        await testing.start(shop(1), id="order")
        with pytest.raises(NotFound, match="nobody"):
            await assert_replays(store, shop, run_ids=["nobody"])
        with pytest.raises(InvalidValue, match="'shop'"):
            await assert_replays(store, lottery, run_ids=["order"])


async def test_a_terminated_run_replays() -> None:
    """Termination does not ask the code, so the code need not have ended."""
    async with app(shop) as testing:
        run = await testing.start(shop(1), id="order")
        with testing.clock.hold():
            await testing.clock.settle()
            await testing.get(run.id).terminate()
        assert replay(shop, await testing.get("order").history()).ended is None
