"""Structure: recorded choices, scopes, loops."""

from __future__ import annotations

import asyncio

import outlast
from outlast import sync
from outlast.errors import ScopeFailed
from tests.corpus.case import Case
from tests.corpus.stage import notes


@outlast.step
async def add(left: int, right: int) -> int:
    return left + right


@sync.step(name="add")
def add_plainly(left: int, right: int) -> int:
    return left + right


@outlast.step
async def refuse() -> None:
    raise ValueError("no")


def note(line: str) -> None:
    """Note that workflow code has passed here. It has no effect of its own, but a test sees it."""
    notes().append(line)


# -- branch ---------------------------------------------------------------------------------------


@outlast.workflow
async def chooses(number: int) -> str:
    size = outlast.branch("size", "large" if number > 10 else "small")
    if outlast.branch("odd", number % 2 == 1):
        number = await add(number, 1)
    return f"{size} {number}"


@outlast.workflow
def chooses_sync(number: int) -> str:
    size = sync.branch("size", "large" if number > 10 else "small")
    if sync.branch("odd", number % 2 == 1):
        number = add_plainly(number, 1)
    return f"{size} {number}"


CHOOSES = """
    workflow.started
    branch.evaluated branch:size
    branch.evaluated branch:odd
    step.started add
    step.completed add
    workflow.completed
"""


@outlast.workflow
async def a_choice_is_kept() -> str:
    first = outlast.branch("luck", str(len(notes())))
    note("here")
    await outlast.sleep(hours=1)
    return first


# -- scope ----------------------------------------------------------------------------------------


async def twice(number: int) -> int:
    note("in twice")
    number = await add(number, number)
    await outlast.sleep(minutes=10)
    return await add(number, number)


@outlast.workflow
async def closes_a_scope() -> int:
    number: int = await outlast.scope(twice, 1)
    await outlast.sleep(hours=1)
    return number


async def breaks() -> int:
    note("in breaks")
    await refuse()
    return 0


@outlast.workflow
async def a_scope_breaks() -> str:
    try:
        await outlast.scope(breaks)
    except ScopeFailed as failure:
        await outlast.sleep(hours=1)
        return f"{failure.scope} {failure.error_type}"
    return "never"


async def outer(number: int) -> int:
    doubled: int = await outlast.scope(twice, number)
    await outlast.sleep(hours=1)
    return await add(doubled, 1)


@outlast.workflow
async def scopes_in_scopes() -> list[int]:
    results: list[int] = list(
        await asyncio.gather(outlast.scope(outer, 1), outlast.scope(twice, 10, name="other"))
    )
    await outlast.sleep(hours=1)
    return results


# -- loop -----------------------------------------------------------------------------------------


async def count(number: int) -> int | outlast.Stop[str]:
    note(f"round {number}")
    number = await add(number, 1)
    return outlast.Stop(f"counted to {number}") if number == 3 else number


@outlast.workflow
async def loops() -> str:
    text: str = await outlast.loop(count, 0)
    await outlast.sleep(hours=1)
    return text


LOOPS = """
    workflow.started
    step.started loop:count/0/add
    step.completed loop:count/0/add
    loop.iterated loop:count
    step.started loop:count/1/add
    step.completed loop:count/1/add
    loop.iterated loop:count
    step.started loop:count/2/add
    step.completed loop:count/2/add
    timer.started timer
    timer.fired timer
    workflow.completed
"""


async def march(number: int) -> int | outlast.Stop[int]:
    note(f"round {number}")
    if number == 299:
        await outlast.sleep(hours=1)
        return outlast.Stop(number)
    return await add(number, 1)


@outlast.workflow
async def loops_for_long() -> int:
    number: int = await outlast.loop(march, 0)
    return number


LOOPS_FOR_LONG = "\n".join(
    [
        "workflow.started",
        *(
            line.format(n)
            for n in range(299)
            for line in (
                "step.started loop:march/{}/add",
                "step.completed loop:march/{}/add",
                "loop.iterated loop:march",
            )
        ),
        "timer.started loop:march/299/timer",
        "timer.fired loop:march/299/timer",
        "workflow.completed",
    ]
)


async def tick(number: int) -> int | outlast.Stop[int]:
    return outlast.Stop(number) if number == 3 else number + 1


@outlast.workflow
async def loops_without_a_pause() -> int:
    number: int = await outlast.loop(tick, 0)
    await outlast.sleep(hours=1)
    return number


CASES = [
    Case(chooses, CHOOSES, "large 14", args=(13,)),
    Case(chooses_sync, CHOOSES, "large 14", args=(13,)),
    Case(
        closes_a_scope,
        """
        workflow.started
        scope.started scope:twice
        step.started scope:twice/add
        step.completed scope:twice/add
        timer.started scope:twice/timer
        timer.fired scope:twice/timer
        step.started scope:twice/add#2
        step.completed scope:twice/add#2
        scope.completed scope:twice
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        4,
        # Twice: once live, and once after the short sleep. After the long one it is closed.
        notes=["in twice", "in twice"],
    ),
    Case(
        a_scope_breaks,
        """
        workflow.started
        scope.started scope:breaks
        step.started scope:breaks/refuse
        step.failed scope:breaks/refuse
        scope.failed scope:breaks
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        "scope:breaks StepFailed",
        bodies=1,
        notes=["in breaks"],
    ),
    Case(loops, LOOPS, "counted to 3", notes=["round 0", "round 1", "round 2", "round 2"]),
    Case(
        loops_for_long,
        LOOPS_FOR_LONG,
        299,
        # The whole march once, and after the sleep the last round alone.
        notes=[*(f"round {number}" for number in range(300)), "round 299"],
    ),
    Case(
        loops_without_a_pause,
        """
        workflow.started
        loop.iterated loop:tick
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        3,
    ),
    Case(
        scopes_in_scopes,
        """
        workflow.started
        scope.started 0/scope:outer
        scope.started 0/scope:outer/scope:twice
        step.started 0/scope:outer/scope:twice/add
        scope.started 1/scope:other
        step.started 1/scope:other/add
        step.completed 0/scope:outer/scope:twice/add
        timer.started 0/scope:outer/scope:twice/timer
        step.completed 1/scope:other/add
        timer.started 1/scope:other/timer
        timer.fired 0/scope:outer/scope:twice/timer
        step.started 0/scope:outer/scope:twice/add#2
        timer.fired 1/scope:other/timer
        step.started 1/scope:other/add#2
        step.completed 0/scope:outer/scope:twice/add#2
        scope.completed 0/scope:outer/scope:twice
        timer.started 0/scope:outer/timer
        step.completed 1/scope:other/add#2
        scope.completed 1/scope:other
        timer.fired 0/scope:outer/timer
        step.started 0/scope:outer/add
        step.completed 0/scope:outer/add
        scope.completed 0/scope:outer
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        [5, 40],
        parallel=True,
    ),
    Case(
        a_choice_is_kept,
        """
        workflow.started
        branch.evaluated branch:luck
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        "0",
        after_crash=("1",),
    ),
]
