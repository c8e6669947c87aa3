"""Replay: what has to be the same when the code runs again."""

from __future__ import annotations

import outlast
from outlast import sync
from tests.corpus.case import Case
from tests.corpus.stage import notes


@outlast.step
async def keep(value: str) -> str:
    return value


@sync.step(name="keep")
def keep_plainly(value: str) -> str:
    return value


@outlast.workflow
async def luck_is_the_same_again() -> bool:
    luck = f"{outlast.uuid4()} {outlast.random().random()} {outlast.random().randint(1, 10**9)}"
    kept = await keep(luck)
    await outlast.sleep(hours=1)
    return kept == luck


@outlast.workflow
def luck_is_the_same_again_sync() -> bool:
    luck = f"{sync.uuid4()} {sync.random().random()} {sync.random().randint(1, 10**9)}"
    kept = keep_plainly(luck)
    sync.sleep(hours=1)
    return kept == luck


LUCK = """
    workflow.started
    step.started keep
    step.completed keep
    timer.started timer
    timer.fired timer
    workflow.completed
"""


@outlast.workflow
async def time_is_the_same_again() -> bool:
    before = str(outlast.now())
    kept = await keep(before)
    await outlast.sleep(hours=1)
    between = str(outlast.now())
    also_kept = await keep(between)
    await outlast.sleep(hours=1)
    return (kept, also_kept) == (before, between)


@outlast.workflow
async def goes_the_new_way() -> str:
    if outlast.patched("faster"):
        return await keep("new")
    return await keep("old")


@outlast.workflow
async def does_not_share_values() -> list[int]:
    """A step gets copies, and the workflow gets copies: nobody changes what is recorded."""
    numbers = [1]
    returned = await changes(numbers)
    returned.append(3)
    again = await changes(numbers)
    await outlast.sleep(hours=1)
    return [len(numbers), len(returned), len(again)]


@outlast.step
async def changes(numbers: list[int]) -> list[int]:
    numbers.append(2)
    notes().append(len(numbers))
    return numbers


CASES = [
    Case(luck_is_the_same_again, LUCK, True),
    Case(luck_is_the_same_again_sync, LUCK, True),
    Case(
        time_is_the_same_again,
        """
        workflow.started
        step.started keep
        step.completed keep
        timer.started timer
        timer.fired timer
        step.started keep#2
        step.completed keep#2
        timer.started timer#2
        timer.fired timer#2
        workflow.completed
        """,
        True,
    ),
    Case(
        goes_the_new_way,
        """
        workflow.started
        branch.evaluated patch:faster
        step.started keep
        step.completed keep
        workflow.completed
        """,
        "new",
    ),
    Case(
        does_not_share_values,
        """
        workflow.started
        step.started changes
        step.completed changes
        step.started changes#2
        step.completed changes#2
        timer.started timer
        timer.fired timer
        workflow.completed
        """,
        [1, 3, 2],
    ),
]
