"""Lives: runs that are retried, continued, forked or deleted while they have children."""

from __future__ import annotations

import asyncio

import outlast
from outlast.engine.operations.child import ParentClose
from outlast.model import Status
from tests.corpus.case import RUN, Case
from tests.corpus.control import needs_power, work
from tests.corpus.stage import Stage, notes


@outlast.workflow
async def assists(name: str) -> str:
    return await work(name)


ASSISTS = """
    workflow.started
    step.started work
    step.completed work
    workflow.completed
"""


async def mends_and_retries(stage: Stage) -> None:
    await stage.until(lambda run: run.status is Status.FAILED)
    stage.notes.append("power")
    await stage.client.get(RUN).retry()
    await stage.until_all_have_ended()


# -- retry ----------------------------------------------------------------------------------------


@outlast.workflow
async def is_retried_after_its_child() -> str:
    """The child has completed, and is not begun again."""
    first = await assists("first")
    return first + " " + await needs_power()


@outlast.workflow
async def is_retried_beside_its_child() -> list[str]:
    """The child runs on, and the next life waits for the same one."""
    left = asyncio.create_task(
        outlast.child(assists("left"), id="left", parent_close=ParentClose.ABANDON)
    )
    return [await needs_power(), await left]


# -- continue_as_new ------------------------------------------------------------------------------


@outlast.workflow
async def begins_anew_with_children(number: int, heard: list[str]) -> list[str]:
    """Each life has a child of its own, and the last one hears of all."""
    heard = [*heard, await outlast.child(assists(f"life {number}"), id=f"kid-{number}")]
    if number < 2:
        outlast.continue_as_new(begins_anew_with_children(number + 1, heard))
    return heard


@outlast.workflow
async def leaves_a_child_to_the_next_life(number: int) -> str:
    """A child that is to outlive its parent runs on, and the next life finds it by its id."""
    if number == 1:
        leaving = asyncio.create_task(
            outlast.child(assists("left"), id="left", parent_close=ParentClose.ABANDON)
        )
        await asyncio.wait(
            [leaving, asyncio.create_task(work("own"))], return_when="FIRST_COMPLETED"
        )
        outlast.continue_as_new(leaves_a_child_to_the_next_life(2))
    return await outlast.child(assists("left"), id="left", parent_close=ParentClose.ABANDON)


# -- fork and delete ------------------------------------------------------------------------------


@outlast.workflow
async def is_forked() -> str:
    first = await outlast.child(assists("first"), id="first")
    return first + " " + await work("second")


async def forks(stage: Stage) -> None:
    await stage.until(lambda run: run.status is Status.COMPLETED)
    await stage.client.get(RUN).fork("work", id="fork")
    await stage.until_all_have_ended()


@outlast.workflow
async def outlives_a_deletion() -> str:
    return await outlast.wait_for_signal("word", str)


@outlast.workflow
async def is_deleted() -> None:
    await asyncio.gather(outlast.child(waits_below()), outlast.wait_for_signal("never"))


@outlast.workflow
async def waits_below() -> None:
    await outlast.wait_for_signal("never")


async def deletes(stage: Stage) -> None:
    other = await stage.client.start(is_deleted(), id="deleted")
    await stage.until_waiting("signal", "deleted~0/child.waits_below")
    await other.delete(force=True)
    assert [run.id async for run in stage.client.find()] == [RUN]
    notes().append("deleted")
    await stage.signal("word", "still here")


CASES = [
    Case(
        is_retried_after_its_child,
        """
        workflow.started
        child.spawned child:assists
        child.completed child:assists
        step.started needs_power
        step.lost needs_power
        step.started needs_power
        step.completed needs_power
        workflow.completed
        """,
        "first done",
        others=(assists,),
        runs={f"{RUN}~child.assists": ASSISTS},
        world=mends_and_retries,
        bodies=3,
    ),
    Case(
        is_retried_beside_its_child,
        """
        workflow.started
        step.started needs_power
        child.spawned 0/child:assists
        step.lost needs_power
        step.started needs_power
        step.completed needs_power
        child.completed 0/child:assists
        workflow.completed
        """,
        ["done", "left"],
        others=(assists,),
        runs={"left": ASSISTS},
        world=mends_and_retries,
        parallel=True,
        bodies=3,
    ),
    Case(
        begins_anew_with_children,
        """
        workflow.started
        child.spawned child:assists
        child.completed child:assists
        workflow.completed
        """,
        ["life 1", "life 2"],
        args=(1, []),
        others=(assists,),
        runs={"kid-1": ASSISTS, "kid-2": ASSISTS},
    ),
    Case(
        leaves_a_child_to_the_next_life,
        """
        workflow.started
        child.spawned child:assists
        child.completed child:assists
        workflow.completed
        """,
        "left",
        args=(1,),
        others=(assists,),
        runs={"left": ASSISTS},
        bodies=2,
    ),
    Case(
        is_forked,
        """
        workflow.started
        child.spawned child:assists
        child.completed child:assists
        step.started work
        step.completed work
        workflow.completed
        """,
        "first second",
        others=(assists,),
        runs={
            "first": ASSISTS,
            "fork": """
                workflow.started
                child.spawned child:assists
                child.completed child:assists
                step.started work
                step.completed work
                workflow.completed
            """,
        },
        world=forks,
        bodies=3,
    ),
    Case(
        outlives_a_deletion,
        """
        workflow.started
        signal.waiting signal:word
        signal.received signal:word
        workflow.completed
        """,
        "still here",
        others=(is_deleted, waits_below),
        world=deletes,
        notes=["deleted"],
    ),
]
