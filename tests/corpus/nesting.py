"""Nesting: compensation of what was done in scopes, branches and maps, in one another."""

from __future__ import annotations

import asyncio

import outlast
from outlast import sync
from outlast.errors import ChildFailed, ScopeFailed
from tests.corpus.case import RUN, Cancelled, Case, Failed
from tests.corpus.stage import Stage, notes, takes, undone


@outlast.step
async def book(what: str, seconds: float = 1) -> str:
    await takes(seconds)
    return what


@book.compensate
async def unbook(what: str) -> None:
    undone(f"unbook {what}")


@outlast.step
async def refuse() -> None:
    raise ValueError("full")


async def night(town: str) -> str:
    await book(f"hotel in {town}", 3)
    await outlast.map(book, [f"dinner in {town}", f"lunch in {town}"], concurrency=1)
    return town


async def journey(*towns: str) -> list[str]:
    by_train = book("train", 9)
    first, second, _ = await asyncio.gather(
        *(outlast.scope(night, town) for town in towns), by_train
    )
    return [first, second]


@outlast.workflow
async def undoes_what_is_nested() -> None:
    """Branches in a scope, scopes in the branches, maps in those."""
    await book("insurance")
    await outlast.scope(journey, "rome", "oslo")
    await outlast.sleep(hours=1)
    await refuse()


@outlast.workflow
async def undoes_what_a_broken_scope_did() -> None:
    """A scope that fails is not undone by itself: the run goes on, and fails later."""

    async def breaks() -> None:
        await book("flight")
        await refuse()

    try:
        await outlast.scope(breaks)
    except ScopeFailed:
        await book("train")
    await outlast.sleep(hours=1)
    await refuse()


# -- undoing that takes its time ------------------------------------------------------------------


@outlast.step
async def order(what: str) -> str:
    return what


@order.compensate
async def call_off(what: str) -> None:
    """The office is closed the first three times."""
    if notes().count(f"closed for {what}") < 3:
        notes().append(f"closed for {what}")
        raise ConnectionError("closed")
    undone(f"call off {what}")


@sync.step(name="order")
def order_plainly(what: str) -> str:
    return what


@order_plainly.compensate
def call_off_plainly(what: str) -> None:
    if notes().count(f"closed for {what}") < 3:
        notes().append(f"closed for {what}")
        raise ConnectionError("closed")
    undone(f"call off {what}")


@sync.step(name="refuse")
def refuse_plainly() -> None:
    raise ValueError("full")


@outlast.workflow
async def undoes_patiently() -> None:
    await order("cake")
    await refuse()


@outlast.workflow
def undoes_patiently_sync() -> None:
    order_plainly("cake")
    refuse_plainly()


UNDOES_PATIENTLY = """
    workflow.started
    step.started order
    step.completed order
    step.started refuse
    step.failed refuse
    compensation.started undo
    step.started undo/order
    step.failed undo/order
    step.started undo/order
    step.failed undo/order
    step.started undo/order
    step.failed undo/order
    step.started undo/order
    step.completed undo/order
    compensation.completed undo
    workflow.failed
"""
PATIENT_NOTES = [*["closed for cake"] * 3, "call off cake"]


# -- runs in runs ---------------------------------------------------------------------------------


@outlast.workflow
async def guest() -> None:
    await book("guest's room")
    await outlast.sleep(days=9)


@outlast.workflow
async def is_cancelled_with_its_guest() -> None:
    """Both undo what they did: the child first, and its parent when the child has ended."""
    await book("host's room")
    try:
        await guest()
    except ChildFailed:
        notes().append("never")


async def cancels_both(stage: Stage) -> None:
    await stage.until_waiting("timer", f"{RUN}~child.guest")
    await stage.until_waiting("child")
    await stage.client.get(RUN).cancel("rain")


FULL = Failed("ValueError: full")

CASES = [
    Case(
        undoes_what_is_nested,
        """
        workflow.started
        step.started book
        step.completed book
        scope.started scope:journey
        scope.started scope:journey/0/scope:night
        step.started scope:journey/0/scope:night/book
        scope.started scope:journey/1/scope:night
        step.started scope:journey/1/scope:night/book
        step.started scope:journey/2/book
        step.completed scope:journey/0/scope:night/book
        map.started scope:journey/0/scope:night/map:book
        step.completed scope:journey/1/scope:night/book
        map.started scope:journey/1/scope:night/map:book
        map.progress scope:journey/0/scope:night/map:book
        map.progress scope:journey/1/scope:night/map:book
        map.progress scope:journey/0/scope:night/map:book
        map.completed scope:journey/0/scope:night/map:book
        scope.completed scope:journey/0/scope:night
        map.progress scope:journey/1/scope:night/map:book
        map.completed scope:journey/1/scope:night/map:book
        scope.completed scope:journey/1/scope:night
        step.completed scope:journey/2/book
        scope.completed scope:journey
        timer.started timer
        timer.fired timer
        step.started refuse
        step.failed refuse
        compensation.started undo
        step.started undo/scope:journey/2/book
        step.completed undo/scope:journey/2/book
        step.started undo/scope:journey/1/scope:night/map:book[1]
        step.completed undo/scope:journey/1/scope:night/map:book[1]
        step.started undo/scope:journey/0/scope:night/map:book[1]
        step.completed undo/scope:journey/0/scope:night/map:book[1]
        step.started undo/scope:journey/1/scope:night/map:book[0]
        step.completed undo/scope:journey/1/scope:night/map:book[0]
        step.started undo/scope:journey/0/scope:night/map:book[0]
        step.completed undo/scope:journey/0/scope:night/map:book[0]
        step.started undo/scope:journey/1/scope:night/book
        step.completed undo/scope:journey/1/scope:night/book
        step.started undo/scope:journey/0/scope:night/book
        step.completed undo/scope:journey/0/scope:night/book
        step.started undo/book
        step.completed undo/book
        compensation.completed undo
        workflow.failed
        """,
        FULL,
        bodies=17,
        notes=[
            "unbook train",
            "unbook lunch in oslo",
            "unbook lunch in rome",
            "unbook dinner in oslo",
            "unbook dinner in rome",
            "unbook hotel in oslo",
            "unbook hotel in rome",
            "unbook insurance",
        ],
        parallel=True,
    ),
    Case(
        undoes_what_a_broken_scope_did,
        """
        workflow.started
        scope.started scope:breaks
        step.started scope:breaks/book
        step.completed scope:breaks/book
        step.started scope:breaks/refuse
        step.failed scope:breaks/refuse
        scope.failed scope:breaks
        step.started book
        step.completed book
        timer.started timer
        timer.fired timer
        step.started refuse
        step.failed refuse
        compensation.started undo
        step.started undo/book
        step.completed undo/book
        step.started undo/scope:breaks/book
        step.completed undo/scope:breaks/book
        compensation.completed undo
        workflow.failed
        """,
        FULL,
        bodies=6,
        notes=["unbook train", "unbook flight"],
    ),
    Case(undoes_patiently, UNDOES_PATIENTLY, FULL, bodies=6, notes=PATIENT_NOTES),
    Case(undoes_patiently_sync, UNDOES_PATIENTLY, FULL, bodies=6, notes=PATIENT_NOTES),
    Case(
        is_cancelled_with_its_guest,
        """
        workflow.started
        step.started book
        step.completed book
        child.spawned child:guest
        cancel.requested
        operation.abandoned child:guest
        child.failed child:guest
        compensation.started undo
        step.started undo/book
        step.completed undo/book
        compensation.completed undo
        workflow.cancelled
        """,
        Cancelled("rain"),
        others=(guest,),
        runs={
            f"{RUN}~child.guest": """
            workflow.started
            step.started book
            step.completed book
            timer.started timer
            cancel.requested
            operation.abandoned timer
            compensation.started undo
            step.started undo/book
            step.completed undo/book
            compensation.completed undo
            workflow.cancelled
            """
        },
        world=cancels_both,
    ),
]
