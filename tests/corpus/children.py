"""Children: runs that a run starts, with a history of their own."""

from __future__ import annotations

import asyncio

import outlast
from outlast import sync
from outlast.errors import ChildFailed
from tests.corpus.case import RUN, Cancelled, Case
from tests.corpus.stage import Stage, takes


@outlast.step
async def add(left: int, right: int) -> int:
    await takes(5)
    return left + right


@sync.step(name="add")
def add_plainly(left: int, right: int) -> int:
    return left + right


@outlast.step
async def clean_up() -> None: ...


@outlast.workflow
async def doubles(number: int) -> int:
    return await add(number, number)


DOUBLES = """
    workflow.started
    step.started add
    step.completed add
    workflow.completed
"""


@outlast.workflow
async def has_a_child() -> int:
    number: int = await doubles(4)
    return await add(number, 1)


@outlast.workflow
def has_a_child_sync() -> int:
    return add_plainly(sync.child(doubles(4)), 1)


HAS_A_CHILD = """
    workflow.started
    child.spawned child:doubles
    child.completed child:doubles
    step.started add
    step.completed add
    workflow.completed
"""


@outlast.workflow
async def falls() -> None:
    await outlast.sleep(hours=1)
    raise ValueError("it fell")


@outlast.workflow
async def hears_of_a_failure() -> str:
    try:
        await falls()
    except ChildFailed as failure:
        return f"{failure.child}: {failure.error}"
    return "never"


@outlast.workflow
async def names_its_child() -> int:
    number: int = await outlast.child(doubles(2), id="invoice-7")
    return number


@outlast.workflow
async def two_children_and_a_grandchild() -> list[int]:
    return list(await asyncio.gather(has_a_child(), doubles(1)))


@outlast.workflow
async def sleeps_long() -> str:
    try:
        await outlast.sleep(days=2)
    finally:
        await clean_up()
    return "slept"


@outlast.workflow
async def is_cancelled_with_its_child() -> None:
    await sleeps_long()


CANCELLED_CHILD = """
    workflow.started
    timer.started timer
    cancel.requested
    operation.abandoned timer
    step.started clean_up
    step.completed clean_up
    workflow.cancelled
"""


async def cancels(stage: Stage) -> None:
    await stage.until_waiting("timer", f"{RUN}~child.sleeps_long")
    await stage.client.get(RUN).cancel("no longer needed")


@outlast.workflow
async def leaves_its_child_alone() -> None:
    await outlast.child(sleeps_long(), parent_close="abandon")


@outlast.workflow
async def ends_before_its_child() -> str:
    waiting = asyncio.create_task(sleeps_long())
    await add(1, 1)
    return f"waiting: {not waiting.done()}"


@outlast.workflow
async def loses_patience() -> str:
    try:
        async with asyncio.timeout(3600):
            await sleeps_long()
    except TimeoutError:
        return "enough"
    return "never"


SLEPT = """
    workflow.started
    timer.started timer
    timer.fired timer
    step.started clean_up
    step.completed clean_up
    workflow.completed
"""


CASES = [
    Case(has_a_child, HAS_A_CHILD, 9, others=(doubles,), runs={f"{RUN}~child.doubles": DOUBLES}),
    Case(
        has_a_child_sync, HAS_A_CHILD, 9, others=(doubles,), runs={f"{RUN}~child.doubles": DOUBLES}
    ),
    Case(
        hears_of_a_failure,
        """
        workflow.started
        child.spawned child:falls
        child.failed child:falls
        workflow.completed
        """,
        f"{RUN}~child.falls: ValueError: it fell",
        others=(falls,),
        runs={
            f"{RUN}~child.falls": """
            workflow.started
            timer.started timer
            timer.fired timer
            workflow.failed
            """
        },
    ),
    Case(
        names_its_child,
        """
        workflow.started
        child.spawned child:doubles
        child.completed child:doubles
        workflow.completed
        """,
        4,
        others=(doubles,),
        runs={"invoice-7": DOUBLES},
    ),
    Case(
        two_children_and_a_grandchild,
        """
        workflow.started
        child.spawned 0/child:has_a_child
        child.spawned 1/child:doubles
        child.completed 1/child:doubles
        child.completed 0/child:has_a_child
        workflow.completed
        """,
        [9, 2],
        others=(has_a_child, doubles),
        runs={
            f"{RUN}~0/child.has_a_child": HAS_A_CHILD,
            f"{RUN}~0/child.has_a_child~child.doubles": DOUBLES,
            f"{RUN}~1/child.doubles": DOUBLES,
        },
        parallel=True,
    ),
    Case(
        is_cancelled_with_its_child,
        """
        workflow.started
        child.spawned child:sleeps_long
        cancel.requested
        operation.abandoned child:sleeps_long
        child.failed child:sleeps_long
        workflow.cancelled
        """,
        Cancelled("no longer needed"),
        others=(sleeps_long,),
        runs={f"{RUN}~child.sleeps_long": CANCELLED_CHILD},
        world=cancels,
    ),
    Case(
        leaves_its_child_alone,
        """
        workflow.started
        child.spawned child:sleeps_long
        cancel.requested
        operation.abandoned child:sleeps_long
        workflow.cancelled
        """,
        Cancelled("no longer needed"),
        others=(sleeps_long,),
        runs={f"{RUN}~child.sleeps_long": SLEPT},
        world=cancels,
    ),
    Case(
        ends_before_its_child,
        """
        workflow.started
        step.started add
        child.spawned 0/child:sleeps_long
        step.completed add
        workflow.completed
        """,
        "waiting: True",
        others=(sleeps_long,),
        runs={f"{RUN}~0/child.sleeps_long": CANCELLED_CHILD},
    ),
    Case(
        loses_patience,
        """
        workflow.started
        timer.started timer
        child.spawned child:sleeps_long
        timer.fired timer
        operation.abandoned child:sleeps_long
        workflow.completed
        """,
        "enough",
        others=(sleeps_long,),
        runs={f"{RUN}~child.sleeps_long": CANCELLED_CHILD},
    ),
]
