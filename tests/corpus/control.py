"""Control: what others do to a run, and what a run does with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import outlast
from outlast import sync
from outlast.model import Status
from tests.corpus.case import RUN, Cancelled, Case, Failed
from tests.corpus.stage import Stage, notes, takes


@outlast.step
async def work(name: str) -> str:
    await takes(60)
    return name


@outlast.step
async def clean_up() -> None:
    notes().append("cleaned up")


@sync.step(name="work")
def work_plainly(name: str) -> str:
    return name


@sync.step(name="clean_up")
def clean_up_plainly() -> None:
    notes().append("cleaned up")


async def cancels(stage: Stage) -> None:
    await stage.until_waiting("timer")
    await stage.client.get(RUN).cancel("enough")


# -- cancel and eviction --------------------------------------------------------------------------


@outlast.workflow
async def cleans_up() -> None:
    try:
        await outlast.sleep(days=1)
    finally:
        await clean_up()
        notes().append("gone on")


@outlast.workflow
def cleans_up_sync() -> None:
    try:
        sync.sleep(days=1)
    finally:
        clean_up_plainly()
        notes().append("gone on")


CANCELLED = """
    workflow.started
    timer.started timer
    cancel.requested
    operation.abandoned timer
    step.started clean_up
    step.completed clean_up
    workflow.cancelled
"""

EVICTED = """
    workflow.started
    timer.started timer
    timer.fired timer
    step.started clean_up
    step.completed clean_up
    workflow.completed
"""


@outlast.workflow
async def a_group_cleans_up() -> None:
    """Deep in asyncio's own code, eviction has to get through all the same."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(cleans_up_inside())
            await outlast.sleep(days=1)
    finally:
        await clean_up()


async def cleans_up_inside() -> None:
    try:
        await outlast.sleep(hours=1)
        await asyncio.shield(asyncio.gather(outlast.sleep(hours=1), outlast.sleep(hours=2)))
    finally:
        await clean_up()


async def numbers() -> AsyncIterator[int]:
    """An async generator is closed by asyncio, and not where it was left."""
    try:
        for number in range(3):
            await outlast.sleep(hours=1)
            yield number
    finally:
        await clean_up()


@outlast.workflow
async def a_generator_cleans_up() -> int:
    total = 0
    async for number in numbers():
        total += number
        await outlast.sleep(hours=1)
    return total


@outlast.workflow
async def carries_on() -> str:
    try:
        await outlast.sleep(days=1)
    except asyncio.CancelledError:
        notes().append("was cancelled")
        return await work("carried on")
    return "never"


@outlast.workflow
def carries_on_sync() -> str:
    try:
        sync.sleep(days=1)
    except asyncio.CancelledError:
        notes().append("was cancelled")
        return work_plainly("carried on")
    return "never"


CARRIES_ON = """
    workflow.started
    timer.started timer
    cancel.requested
    operation.abandoned timer
    step.started work
    step.completed work
    workflow.completed
"""


async def stubborn(name: str) -> str:
    try:
        await outlast.sleep(days=1)
    except asyncio.CancelledError:
        return await work(name)
    return "never"


@outlast.workflow
async def a_scope_carries_on() -> str:
    result: str = await outlast.scope(stubborn, "carried on")
    await outlast.sleep(hours=1)
    return result


@outlast.workflow
async def is_cancelled_at_work() -> None:
    try:
        await work("anything")
    finally:
        await outlast.sleep(hours=1)


async def cancels_at_work(stage: Stage) -> None:
    await stage.until_recorded("step.started", "work")
    await takes(1)  # the body has begun, too
    await stage.client.get(RUN).cancel("enough")


# -- terminate, pause, resume, retry --------------------------------------------------------------


async def terminates(stage: Stage) -> None:
    await stage.until_waiting("timer")
    await stage.client.get(RUN).terminate("pulled the plug")


async def pauses_and_resumes(stage: Stage) -> None:
    await stage.client.get(RUN).pause()
    await stage.until(lambda run: run.status is Status.PAUSED and run.owner is None)
    await takes(7 * 86400)
    assert (await stage.client.get(RUN).status()).status is Status.PAUSED
    await stage.client.get(RUN).resume()


@outlast.workflow
async def three_in_a_row() -> list[str]:
    return [await work("one"), await work("two"), await work("three")]


@outlast.step(at_most_once=True)
async def only_once() -> str:
    return "once"


@outlast.workflow
async def is_paused_before_a_delicate_step() -> str:
    await work("first")
    return await only_once()


@outlast.step
async def needs_power() -> str:
    if "power" not in notes():
        raise ConnectionError("no power")
    return "done"


@outlast.workflow
async def fails_until_it_is_mended() -> str:
    first = await work("first")
    return first + " " + await needs_power()


async def mends_and_retries(stage: Stage) -> None:
    await stage.until(lambda run: run.status is Status.FAILED)
    stage.notes.append("power")
    await stage.client.get(RUN).retry()


# -- another life ---------------------------------------------------------------------------------


@outlast.workflow
async def begins_anew(total: int, rounds: int) -> int:
    total += await outlast.wait_for_signal("number", int)
    if rounds > 1:
        outlast.continue_as_new(begins_anew(total, rounds - 1))
    return total


async def sends_three(stage: Stage) -> None:
    for number in (1, 20, 300):
        await stage.signal("number", number, dedup=str(number))


@outlast.workflow
async def begins_anew_at_once(number: int) -> int:
    if number < 3:
        outlast.continue_as_new(begins_anew_at_once(number + 1))
    return number


# -- telling --------------------------------------------------------------------------------------


@outlast.workflow
async def tells_how_far_it_is() -> None:
    outlast.publish(done=0, of=2)
    outlast.set_attributes(customer="ann", urgent=True)
    await outlast.sleep(hours=1)
    outlast.publish(done=1)
    await work("the rest")
    outlast.publish(done=2)


async def asks_how_far(stage: Stage) -> None:
    await stage.until_waiting("timer")
    assert await stage.client.get(RUN).query("done", int) == 0
    found = [run.id async for run in stage.client.find(attributes={"customer": "ann"})]
    assert found == [RUN]
    await stage.until(lambda run: run.status.terminal)
    assert await stage.client.get(RUN).query("done", int) == 2
    assert await stage.client.get(RUN).query("of", int) == 2


CASES = [
    Case(
        cleans_up, EVICTED, None, name="an_eviction_does_not_act", notes=["cleaned up", "gone on"]
    ),
    Case(
        cleans_up_sync,
        EVICTED,
        None,
        name="an_eviction_does_not_act_sync",
        notes=["cleaned up", "gone on"],
    ),
    Case(cleans_up, CANCELLED, Cancelled("enough"), name="a_cancel_acts", world=cancels),
    Case(cleans_up_sync, CANCELLED, Cancelled("enough"), name="a_cancel_acts_sync", world=cancels),
    Case(
        a_group_cleans_up,
        """
        workflow.started
        timer.started timer
        timer.started 0/timer
        timer.fired 0/timer
        timer.started 0/0/timer
        timer.started 0/1/timer
        timer.fired 0/0/timer
        timer.fired 0/1/timer
        step.started 0/clean_up
        step.completed 0/clean_up
        timer.fired timer
        step.started clean_up
        step.completed clean_up
        workflow.completed
        """,
        None,
        notes=["cleaned up", "cleaned up"],
    ),
    Case(
        a_generator_cleans_up,
        """
        workflow.started
        timer.started timer
        timer.fired timer
        timer.started timer#2
        timer.fired timer#2
        timer.started timer#3
        timer.fired timer#3
        timer.started timer#4
        timer.fired timer#4
        timer.started timer#5
        timer.fired timer#5
        timer.started timer#6
        timer.fired timer#6
        step.started clean_up
        step.completed clean_up
        workflow.completed
        """,
        3,
        notes=["cleaned up"],
    ),
    Case(carries_on, CARRIES_ON, "carried on", world=cancels, notes=["was cancelled"]),
    Case(carries_on_sync, CARRIES_ON, "carried on", world=cancels, notes=["was cancelled"]),
    Case(
        a_scope_carries_on,
        """
        workflow.started
        scope.started scope:stubborn
        timer.started scope:stubborn/timer
        cancel.requested
        operation.abandoned scope:stubborn/timer
        step.started scope:stubborn/work
        step.completed scope:stubborn/work
        scope.completed scope:stubborn
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        "carried on",
        world=cancels,
    ),
    Case(
        is_cancelled_at_work,
        """
        workflow.started
        step.started work
        cancel.requested
        operation.abandoned work
        timer.started timer
        step.completed work
        timer.fired timer
        workflow.cancelled
        """,
        Cancelled("enough"),
        world=cancels_at_work,
        bodies=1,
    ),
    Case(
        cleans_up,
        """
        workflow.started
        timer.started timer
        workflow.cancelled
        """,
        Cancelled("pulled the plug"),
        name="is_terminated",
        world=terminates,
        notes=[],
    ),
    Case(
        three_in_a_row,
        """
        workflow.started
        step.started work
        step.completed work
        step.started work#2
        step.completed work#2
        step.started work#3
        step.completed work#3
        workflow.completed
        """,
        ["one", "two", "three"],
        name="is_paused",
        world=pauses_and_resumes,
    ),
    Case(
        is_paused_before_a_delicate_step,
        """
        workflow.started
        step.started work
        step.completed work
        step.started only_once
        step.completed only_once
        workflow.completed
        """,
        "once",
        world=pauses_and_resumes,
        after_crash=(Failed("Interrupted"),),
    ),
    Case(
        fails_until_it_is_mended,
        """
        workflow.started
        step.started work
        step.completed work
        step.started needs_power
        step.lost needs_power
        step.started needs_power
        step.completed needs_power
        workflow.completed
        """,
        "first done",
        world=mends_and_retries,
        bodies=3,
    ),
    Case(
        begins_anew,
        """
        workflow.started
        signal.waiting signal:number
        signal.received signal:number
        workflow.completed
        """,
        321,
        args=(0, 3),
        world=sends_three,
    ),
    Case(begins_anew_at_once, "workflow.started\nworkflow.completed", 3, args=(1,)),
    Case(
        tells_how_far_it_is,
        """
        workflow.started
        timer.started timer
        timer.fired timer
        step.started work
        step.completed work
        workflow.completed
        """,
        None,
        world=asks_how_far,
    ),
]
