"""Compensation: what was done is undone in reverse when a run fails or is cancelled."""

from __future__ import annotations

import asyncio

import outlast
from outlast import sync
from outlast.errors import ChildFailed
from tests.corpus.case import RUN, Cancelled, Case, Failed
from tests.corpus.stage import Stage, takes, undone


@outlast.step
async def book(what: str, seconds: float = 1) -> str:
    await takes(seconds)
    return what


@book.compensate
async def unbook(what: str) -> None:
    await takes(1)
    undone(f"unbook {what}")


@sync.step(name="book")
def book_plainly(what: str) -> str:
    return what


@book_plainly.compensate
def unbook_plainly(what: str) -> None:
    undone(f"unbook {what}")


@sync.step(name="look")
def look_plainly(what: str) -> str:
    return what


@sync.step(name="refuse")
def refuse_plainly() -> None:
    raise ValueError("full")


@outlast.step
async def look(what: str) -> str:
    return what


@outlast.step
async def refuse() -> None:
    raise ValueError("full")


@outlast.workflow
async def undoes() -> None:
    await book("flight")
    await look("weather")
    await book("hotel")
    await refuse()


@outlast.workflow
def undoes_sync() -> None:
    book_plainly("flight")
    look_plainly("weather")
    book_plainly("hotel")
    refuse_plainly()


UNDOES = """
    workflow.started
    step.started book
    step.completed book
    step.started look
    step.completed look
    step.started book#2
    step.completed book#2
    step.started refuse
    step.failed refuse
    compensation.started undo
    step.started undo/book#2
    step.completed undo/book#2
    step.started undo/book
    step.completed undo/book
    compensation.completed undo
    workflow.failed
"""


@outlast.workflow
async def undoes_in_order_of_completion() -> None:
    await asyncio.gather(book("slow", 9), book("quick", 1), book("medium", 5))
    raise RuntimeError("anything")


@outlast.workflow
async def undoes_on_cancel() -> None:
    await book("flight")
    await outlast.sleep(days=1)


async def cancels(stage: Stage) -> None:
    await stage.until_waiting("timer")
    await stage.client.get(RUN).cancel("plans have changed")


# -- undoing that goes wrong ----------------------------------------------------------------------


@outlast.step
async def sell(what: str) -> str:
    return what


@sell.compensate
async def buy_back(what: str) -> None:
    raise ConnectionError("the shop is closed")


@outlast.workflow
async def one_undo_fails() -> None:
    await book("flight")
    await sell("car")
    await book("hotel")
    await refuse()


@outlast.step
async def lend(what: str) -> int:
    return len(what)


@lend.compensate  # type: ignore[arg-type]
async def take_back(what: str) -> None:
    undone(f"take back {what}")


@outlast.workflow
async def an_undo_does_not_fit() -> None:
    await book("flight")
    await lend("car")
    await refuse()


@outlast.step
async def reserve(what: str) -> str:
    return what


@reserve.compensate
async def free_slowly(what: str) -> None:
    await takes(100)
    undone(f"free {what}")


@outlast.workflow
async def is_cancelled_while_it_undoes() -> None:
    await reserve("room")
    await reserve("car")
    await refuse()


async def cancels_the_undoing(stage: Stage) -> None:
    await stage.until_recorded("step.started", "undo/reserve#2")
    await stage.client.get(RUN).cancel("hurry up")


# -- parts of a workflow --------------------------------------------------------------------------


@outlast.workflow
async def all_goes_well() -> str:
    return await book("flight")


async def trip(place: str) -> str:
    return await book(place)


async def stage_of_trip(number: int) -> int | outlast.Stop[int]:
    await book(f"night {number}")
    return outlast.Stop(number) if number == 2 else number + 1


@outlast.workflow
async def undoes_what_a_scope_did() -> None:
    await outlast.scope(trip, "rome")
    await outlast.loop(stage_of_trip, 1)
    await outlast.sleep(hours=1)  # a replay skips what is finished, but not what it would undo
    await refuse()


@outlast.workflow
async def undoes_a_map() -> None:
    await outlast.map(book, ["one", "two", "three"], concurrency=1)
    await outlast.sleep(hours=1)
    await refuse()


@outlast.workflow
async def books_and_fails() -> None:
    await book("child's flight")
    await refuse()


@outlast.workflow
async def undoes_after_its_child_has() -> None:
    await book("flight")
    try:
        await books_and_fails()
    except ChildFailed:
        await book("train")
    await refuse()


FULL = Failed("ValueError: full")

CASES = [
    Case(undoes, UNDOES, FULL, bodies=6, notes=["unbook hotel", "unbook flight"]),
    Case(undoes_sync, UNDOES, FULL, bodies=6, notes=["unbook hotel", "unbook flight"]),
    Case(
        undoes_in_order_of_completion,
        """
        workflow.started
        step.started 0/book
        step.started 1/book
        step.started 2/book
        step.completed 1/book
        step.completed 2/book
        step.completed 0/book
        compensation.started undo
        step.started undo/0/book
        step.completed undo/0/book
        step.started undo/2/book
        step.completed undo/2/book
        step.started undo/1/book
        step.completed undo/1/book
        compensation.completed undo
        workflow.failed
        """,
        Failed("RuntimeError: anything"),
        parallel=True,
    ),
    Case(
        undoes_on_cancel,
        """
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
        """,
        Cancelled("plans have changed"),
        world=cancels,
        notes=["unbook flight"],
    ),
    Case(
        one_undo_fails,
        """
        workflow.started
        step.started book
        step.completed book
        step.started sell
        step.completed sell
        step.started book#2
        step.completed book#2
        step.started refuse
        step.failed refuse
        compensation.started undo
        step.started undo/book#2
        step.completed undo/book#2
        step.started undo/sell
        step.failed undo/sell
        step.started undo/sell
        step.failed undo/sell
        step.started undo/sell
        step.failed undo/sell
        step.started undo/sell
        step.failed undo/sell
        step.started undo/sell
        step.failed undo/sell
        compensation.failed undo/sell
        step.started undo/book
        step.completed undo/book
        workflow.failed
        """,
        FULL,
        bodies=11,
        notes=["unbook hotel", "unbook flight"],
    ),
    Case(
        an_undo_does_not_fit,
        """
        workflow.started
        step.started book
        step.completed book
        step.started lend
        step.completed lend
        step.started refuse
        step.failed refuse
        compensation.started undo
        compensation.failed undo/lend
        step.started undo/book
        step.completed undo/book
        workflow.failed
        """,
        FULL,
        bodies=4,
        notes=["unbook flight"],
    ),
    Case(
        is_cancelled_while_it_undoes,
        """
        workflow.started
        step.started reserve
        step.completed reserve
        step.started reserve#2
        step.completed reserve#2
        step.started refuse
        step.failed refuse
        compensation.started undo
        step.started undo/reserve#2
        cancel.requested
        step.completed undo/reserve#2
        step.started undo/reserve
        step.completed undo/reserve
        compensation.completed undo
        workflow.failed
        """,
        FULL,
        bodies=5,
        world=cancels_the_undoing,
        notes=["free car", "free room"],
        parallel=True,
    ),
    Case(
        all_goes_well,
        """
        workflow.started
        step.started book
        step.completed book
        workflow.completed
        """,
        "flight",
        notes=[],
    ),
    Case(
        undoes_what_a_scope_did,
        """
        workflow.started
        scope.started scope:trip
        step.started scope:trip/book
        step.completed scope:trip/book
        scope.completed scope:trip
        step.started loop:stage_of_trip/0/book
        step.completed loop:stage_of_trip/0/book
        loop.iterated loop:stage_of_trip
        step.started loop:stage_of_trip/1/book
        step.completed loop:stage_of_trip/1/book
        timer.started timer
        timer.fired timer
        step.started refuse
        step.failed refuse
        compensation.started undo
        step.started undo/loop:stage_of_trip/1/book
        step.completed undo/loop:stage_of_trip/1/book
        step.started undo/loop:stage_of_trip/0/book
        step.completed undo/loop:stage_of_trip/0/book
        step.started undo/scope:trip/book
        step.completed undo/scope:trip/book
        compensation.completed undo
        workflow.failed
        """,
        FULL,
        bodies=7,
        notes=["unbook night 2", "unbook night 1", "unbook rome"],
    ),
    Case(
        undoes_a_map,
        """
        workflow.started
        map.started map:book
        map.progress map:book
        map.completed map:book
        timer.started timer
        timer.fired timer
        step.started refuse
        step.failed refuse
        compensation.started undo
        step.started undo/map:book[2]
        step.completed undo/map:book[2]
        step.started undo/map:book[1]
        step.completed undo/map:book[1]
        step.started undo/map:book[0]
        step.completed undo/map:book[0]
        compensation.completed undo
        workflow.failed
        """,
        FULL,
        bodies=7,
        notes=["unbook three", "unbook two", "unbook one"],
    ),
    Case(
        undoes_after_its_child_has,
        """
        workflow.started
        step.started book
        step.completed book
        child.spawned child:books_and_fails
        child.failed child:books_and_fails
        step.started book#2
        step.completed book#2
        step.started refuse
        step.failed refuse
        compensation.started undo
        step.started undo/book#2
        step.completed undo/book#2
        step.started undo/book
        step.completed undo/book
        compensation.completed undo
        workflow.failed
        """,
        FULL,
        others=(books_and_fails,),
        runs={
            f"{RUN}~child.books_and_fails": """
            workflow.started
            step.started book
            step.completed book
            step.started refuse
            step.failed refuse
            compensation.started undo
            step.started undo/book
            step.completed undo/book
            compensation.completed undo
            workflow.failed
            """
        },
        bodies=8,
        notes=["unbook child's flight", "unbook train", "unbook flight"],
    ),
]
