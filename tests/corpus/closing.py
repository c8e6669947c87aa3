"""Closing: a run that has failed ends what it has begun before it undoes anything."""

from __future__ import annotations

import asyncio

import outlast
from outlast import sync
from outlast.errors import RunEnding, UpdateFailed
from tests.corpus.case import RUN, Cancelled, Case, Failed
from tests.corpus.compensation import FULL, book, book_plainly, refuse, sell
from tests.corpus.stage import Stage, notes, takes, undone

NO_ROOM = Failed("ValueError: no room")


@outlast.step
async def hotel(seconds: float = 3) -> None:
    await takes(seconds)
    raise ValueError("no room")


@outlast.step
async def clean(what: str) -> str:
    await takes(1)
    return what


def noted(line: str) -> None:
    if line not in notes():
        notes().append(line)


# -- branches -------------------------------------------------------------------------------------


@outlast.workflow
async def undoes_what_others_finish_later() -> None:
    await asyncio.gather(book("flight"), hotel(), book("car", 60))


@outlast.workflow
async def a_group_fails() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(book("flight"))
        group.create_task(hotel())
        group.create_task(book("car", 60))


@outlast.workflow
async def gives_a_step_up_that_it_can_undo() -> None:
    await book("flight")
    async with asyncio.timeout(10):
        await book("car", 60)


async def inner(what: str) -> None:
    await asyncio.gather(book(what, 20), book(f"{what} again", 40))


@outlast.workflow
async def nested_branches_fail() -> None:
    await asyncio.gather(inner("flight"), hotel(), asyncio.shield(book("car", 60)))


@outlast.step
async def rent(what: str) -> str:
    await takes({"one": 1, "two": 60, "three": 90}[what])
    return what


@rent.compensate
async def give_back(what: str) -> None:
    undone(f"give back {what}")


@outlast.workflow
async def a_map_is_left() -> None:
    await asyncio.gather(hotel(5), outlast.map(rent, ["one", "two", "three"], concurrency=3))


@outlast.step
async def order(what: str) -> str:
    await takes(1 if what == "none" else 20)
    if what == "none":
        raise ValueError("no room")
    return what


@order.compensate
async def return_order(what: str) -> None:
    undone(f"return {what}")


@outlast.workflow
async def undoes_the_items_beside_the_one_that_failed() -> None:
    await outlast.map(order, ["one", "none", "three"], concurrency=3)


@outlast.workflow
async def books_and_sleeps() -> None:
    await book("child's flight")
    await outlast.sleep(days=1)


@outlast.workflow
async def a_child_is_left() -> None:
    await book("flight")
    await asyncio.gather(hotel(100), books_and_sleeps())


# -- finally --------------------------------------------------------------------------------------


async def drives_and_cleans() -> None:
    try:
        await book("car", 60)
    finally:
        await outlast.sleep(seconds=5)
        noted(await clean("desk"))


@outlast.workflow
async def cleans_up_before_it_undoes() -> None:
    await asyncio.gather(book("flight"), hotel(), drives_and_cleans())


async def cancels_the_closing(stage: Stage) -> None:
    await stage.until_recorded("timer.started", "2/timer")
    await stage.client.get(RUN).cancel("hurry up")


@outlast.workflow
async def is_cancelled_twice() -> None:
    try:
        await asyncio.gather(book("flight", 60), drives_and_cleans())
    finally:
        await book("taxi")


async def cancels_twice(stage: Stage) -> None:
    await stage.until_recorded("step.started", "1/book")
    await takes(1)  # the bodies have begun
    await stage.client.get(RUN).cancel("no time")
    await stage.until_recorded("step.started", "book")
    await takes(0.5)
    await stage.client.get(RUN).cancel("no time at all")


async def goes_on_whatever_comes() -> None:
    try:
        await book("car", 20)
    except asyncio.CancelledError:
        noted("goes on")
    try:
        await book("bus", 20)
        await outlast.wait_for_signal("never")
    except BaseException as closed:  # noqa: BLE001 - whatever it is, it goes on
        noted(type(closed).__name__)
        try:
            await book("plane")
        except RunEnding as refused:
            noted(type(refused).__name__)
            raise


@outlast.workflow
async def a_branch_will_not_end() -> None:
    await asyncio.gather(hotel(), goes_on_whatever_comes())


# -- updates, threads, scopes ---------------------------------------------------------------------


@outlast.workflow
async def fails_while_it_answers() -> None:
    @outlast.on_update
    async def add(what: str) -> str:
        return await book(what, 60)

    await outlast.sleep(seconds=30)
    await refuse()


async def updates_once(stage: Stage) -> None:
    await stage.until_recorded("timer.started", "timer")
    try:
        await stage.client.get(RUN).update("add", "car", dedup="once")
    except UpdateFailed as failed:
        noted(failed.error)


@outlast.workflow
def is_cancelled_in_its_thread() -> None:
    book_plainly("flight")
    try:
        sync.sleep(days=1)
    finally:
        book_plainly("taxi")


async def cancels(stage: Stage) -> None:
    await stage.until_waiting("timer")
    await stage.client.get(RUN).cancel("plans have changed")


async def trip(what: str) -> str:
    await book(f"{what} there", 2)
    try:
        return await book(f"{what} back", 60)
    except asyncio.CancelledError:
        return "stays there"


async def tours(number: int) -> int | outlast.Stop[int]:
    await book(f"tour {number}", 2 if number == 1 else 60)
    return number + 1


@outlast.workflow
async def scopes_and_loops_are_left() -> None:
    await asyncio.gather(outlast.scope(trip, "rome"), outlast.loop(tours, 1), hotel(9))


@outlast.workflow
async def an_undo_fails_after_closing() -> None:
    await asyncio.gather(book("flight"), hotel(), sell("car"), book("train", 60))


# -- unknown outcomes -----------------------------------------------------------------------------


@outlast.step(timeout=10)
async def charge(card: str, amount: int = 1) -> str:
    await takes(60)
    return card


@charge.compensate
async def refund(card: str) -> None:
    undone(f"refund {card}")


@charge.compensate(unknown=True)
async def refund_if_charged(key: str, card: str, amount: int = 1) -> None:
    undone(f"look for {key.partition('/')[2]}: {card}, {amount}")


@outlast.step(timeout=10)
async def send(what: str) -> str:
    await takes(60)
    return what


@send.compensate
async def call_back(what: str) -> None:
    undone(f"call back {what}")


@outlast.workflow
async def undoes_what_may_have_been_done() -> None:
    await book("flight")
    await asyncio.gather(charge("visa", amount=7), send("letter"), return_exceptions=True)
    await book("hotel")
    await refuse()


CASES = [
    Case(
        undoes_what_others_finish_later,
        """
        workflow.started
        step.started 0/book
        step.started 1/hotel
        step.started 2/book
        step.completed 0/book
        step.failed 1/hotel
        operation.abandoned 2/book
        step.completed 2/book
        compensation.started undo
        step.started undo/2/book
        step.completed undo/2/book
        step.started undo/0/book
        step.completed undo/0/book
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        bodies=5,
        notes=["unbook car", "unbook flight"],
        parallel=True,
    ),
    Case(
        a_group_fails,
        """
        workflow.started
        step.started 0/book
        step.started 1/hotel
        step.started 2/book
        step.completed 0/book
        step.failed 1/hotel
        operation.abandoned 2/book
        step.completed 2/book
        compensation.started undo
        step.started undo/2/book
        step.completed undo/2/book
        step.started undo/0/book
        step.completed undo/0/book
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        bodies=5,
        notes=["unbook car", "unbook flight"],
        parallel=True,
    ),
    Case(
        gives_a_step_up_that_it_can_undo,
        """
        workflow.started
        step.started book
        step.completed book
        timer.started timer
        step.started book#2
        timer.fired timer
        operation.abandoned book#2
        step.completed book#2
        compensation.started undo
        step.started undo/book#2
        step.completed undo/book#2
        step.started undo/book
        step.completed undo/book
        compensation.completed undo
        workflow.failed
        """,
        Failed("TimeoutError: TimeoutError"),
        bodies=4,
        notes=["unbook car", "unbook flight"],
        parallel=True,
    ),
    Case(
        nested_branches_fail,
        """
        workflow.started
        step.started 0/book
        step.started 2/hotel
        step.started 1/0/book
        step.started 1/1/book
        step.failed 2/hotel
        operation.abandoned 0/book
        operation.abandoned 1/0/book
        operation.abandoned 1/1/book
        step.completed 1/0/book
        step.completed 1/1/book
        step.completed 0/book
        compensation.started undo
        step.started undo/0/book
        step.completed undo/0/book
        step.started undo/1/1/book
        step.completed undo/1/1/book
        step.started undo/1/0/book
        step.completed undo/1/0/book
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        bodies=7,
        notes=["unbook car", "unbook flight again", "unbook flight"],
        parallel=True,
    ),
    Case(
        a_map_is_left,
        """
        workflow.started
        step.started 0/hotel
        map.started 1/map:rent
        map.progress 1/map:rent
        step.failed 0/hotel
        operation.abandoned 1/map:rent
        map.progress 1/map:rent
        map.completed 1/map:rent
        compensation.started undo
        step.started undo/1/map:rent[2]
        step.completed undo/1/map:rent[2]
        step.started undo/1/map:rent[1]
        step.completed undo/1/map:rent[1]
        step.started undo/1/map:rent[0]
        step.completed undo/1/map:rent[0]
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        bodies=7,
        notes=["give back three", "give back two", "give back one"],
        parallel=True,
    ),
    Case(
        undoes_the_items_beside_the_one_that_failed,
        """
        workflow.started
        map.started map:order
        map.progress map:order
        map.failed map:order
        compensation.started undo
        step.started undo/map:order[2]
        step.completed undo/map:order[2]
        step.started undo/map:order[0]
        step.completed undo/map:order[0]
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        bodies=5,
        notes=["return three", "return one"],
        parallel=True,
    ),
    Case(
        a_child_is_left,
        """
        workflow.started
        step.started book
        step.completed book
        step.started 0/hotel
        child.spawned 1/child:books_and_sleeps
        step.failed 0/hotel
        operation.abandoned 1/child:books_and_sleeps
        child.failed 1/child:books_and_sleeps
        compensation.started undo
        step.started undo/book
        step.completed undo/book
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        others=(books_and_sleeps,),
        runs={
            f"{RUN}~1/child.books_and_sleeps": """
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
        bodies=5,
        notes=["unbook child's flight", "unbook flight"],
        parallel=True,
    ),
    Case(
        cleans_up_before_it_undoes,
        """
        workflow.started
        step.started 0/book
        step.started 1/hotel
        step.started 2/book
        step.completed 0/book
        step.failed 1/hotel
        operation.abandoned 2/book
        timer.started 2/timer
        timer.fired 2/timer
        step.started 2/clean
        step.completed 2/clean
        step.completed 2/book
        compensation.started undo
        step.started undo/2/book
        step.completed undo/2/book
        step.started undo/0/book
        step.completed undo/0/book
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        bodies=6,
        notes=["desk", "unbook car", "unbook flight"],
        parallel=True,
    ),
    Case(
        is_cancelled_twice,
        """
        workflow.started
        step.started 0/book
        step.started 1/book
        cancel.requested
        operation.abandoned 0/book
        operation.abandoned 1/book
        timer.started 1/timer
        step.started book
        cancel.requested
        operation.abandoned book
        operation.abandoned 1/timer
        step.completed book
        step.completed 0/book
        step.completed 1/book
        compensation.started undo
        step.started undo/1/book
        step.completed undo/1/book
        step.started undo/0/book
        step.completed undo/0/book
        step.started undo/book
        step.completed undo/book
        compensation.completed undo
        workflow.cancelled
        """,
        Cancelled("no time at all"),
        world=cancels_twice,
        bodies=6,
        notes=["unbook car", "unbook flight", "unbook taxi"],
        parallel=True,
    ),
    Case(
        a_branch_will_not_end,
        """
        workflow.started
        step.started 0/hotel
        step.started 1/book
        step.failed 0/hotel
        operation.abandoned 1/book
        step.started 1/book#2
        step.completed 1/book
        step.completed 1/book#2
        compensation.started undo
        step.started undo/1/book#2
        step.completed undo/1/book#2
        step.started undo/1/book
        step.completed undo/1/book
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        bodies=5,
        notes=["goes on", "GeneratorExit", "RunEnding", "unbook bus", "unbook car"],
        parallel=True,
    ),
    Case(
        fails_while_it_answers,
        """
        workflow.started
        timer.started timer
        update.accepted update:add#1
        step.started update:add#1/book
        timer.fired timer
        step.started refuse
        step.failed refuse
        operation.abandoned update:add#1/book
        update.completed update:add#1
        step.completed update:add#1/book
        compensation.started undo
        step.started undo/update:add#1/book
        step.completed undo/update:add#1/book
        compensation.completed undo
        workflow.failed
        """,
        FULL,
        world=updates_once,
        bodies=3,
        notes=["unbook car", "cancelled: the run has ended"],
        parallel=True,
    ),
    Case(
        is_cancelled_in_its_thread,
        """
        workflow.started
        step.started book
        step.completed book
        timer.started timer
        cancel.requested
        operation.abandoned timer
        step.started book#2
        step.completed book#2
        compensation.started undo
        step.started undo/book#2
        step.completed undo/book#2
        step.started undo/book
        step.completed undo/book
        compensation.completed undo
        workflow.cancelled
        """,
        Cancelled("plans have changed"),
        world=cancels,
        bodies=4,
        notes=["unbook taxi", "unbook flight"],
    ),
    Case(
        scopes_and_loops_are_left,
        """
        workflow.started
        scope.started 0/scope:trip
        step.started 0/scope:trip/book
        step.started 1/loop:tours/0/book
        step.started 2/hotel
        step.completed 0/scope:trip/book
        step.started 0/scope:trip/book#2
        step.completed 1/loop:tours/0/book
        loop.iterated 1/loop:tours
        step.started 1/loop:tours/1/book
        step.failed 2/hotel
        operation.abandoned 0/scope:trip/book#2
        scope.completed 0/scope:trip
        operation.abandoned 1/loop:tours/1/book
        step.completed 0/scope:trip/book#2
        step.completed 1/loop:tours/1/book
        compensation.started undo
        step.started undo/1/loop:tours/1/book
        step.completed undo/1/loop:tours/1/book
        step.started undo/0/scope:trip/book#2
        step.completed undo/0/scope:trip/book#2
        step.started undo/1/loop:tours/0/book
        step.completed undo/1/loop:tours/0/book
        step.started undo/0/scope:trip/book
        step.completed undo/0/scope:trip/book
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        bodies=9,
        notes=["unbook tour 2", "unbook rome back", "unbook tour 1", "unbook rome there"],
        parallel=True,
    ),
    Case(
        an_undo_fails_after_closing,
        """
        workflow.started
        step.started 0/book
        step.started 1/hotel
        step.started 2/sell
        step.started 3/book
        step.completed 2/sell
        step.completed 0/book
        step.failed 1/hotel
        operation.abandoned 3/book
        step.completed 3/book
        compensation.started undo
        step.started undo/3/book
        step.completed undo/3/book
        step.started undo/0/book
        step.completed undo/0/book
        step.started undo/2/sell
        step.failed undo/2/sell
        step.started undo/2/sell
        step.failed undo/2/sell
        step.started undo/2/sell
        step.failed undo/2/sell
        step.started undo/2/sell
        step.failed undo/2/sell
        step.started undo/2/sell
        step.failed undo/2/sell
        compensation.failed undo/2/sell
        workflow.failed
        """,
        NO_ROOM,
        bodies=11,
        notes=["unbook train", "unbook flight"],
        parallel=True,
    ),
    Case(
        undoes_what_may_have_been_done,
        """
        workflow.started
        step.started book
        step.completed book
        step.started 0/charge
        step.started 1/send
        step.failed 0/charge
        step.failed 1/send
        step.started book#2
        step.completed book#2
        step.started refuse
        step.failed refuse
        compensation.started undo
        step.started undo/book#2
        step.completed undo/book#2
        step.started undo/0/charge
        step.completed undo/0/charge
        step.started undo/book
        step.completed undo/book
        compensation.completed undo
        workflow.failed
        """,
        FULL,
        bodies=8,
        notes=["unbook hotel", "look for 0/charge: visa, 7", "unbook flight"],
        parallel=True,
    ),
    Case(
        cleans_up_before_it_undoes,
        """
        workflow.started
        step.started 0/book
        step.started 1/hotel
        step.started 2/book
        step.completed 0/book
        step.failed 1/hotel
        operation.abandoned 2/book
        timer.started 2/timer
        cancel.requested
        operation.abandoned 2/timer
        step.completed 2/book
        compensation.started undo
        step.started undo/2/book
        step.completed undo/2/book
        step.started undo/0/book
        step.completed undo/0/book
        compensation.completed undo
        workflow.failed
        """,
        NO_ROOM,
        name="is_cancelled_while_it_closes",
        world=cancels_the_closing,
        bodies=5,
        notes=["unbook car", "unbook flight"],
        parallel=True,
    ),
]
