"""What becomes of children, and of what was sent, when a life of a run ends: stories for every store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import pytest

import outlast
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.errors import RunClosed, RunFailed, StepFailed
from outlast.model import Run, Status
from outlast.ports import Store
from outlast.testing import VirtualApp, VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testkit.wrapped_store import WrappedStore

T = TypeVar("T")
Story = Callable[[Store, VirtualClock], Awaitable[None]]

done: Counter[str] = Counter()
broken: set[str] = set()
hooks: dict[str, Callable[[], Awaitable[None]]] = {}

LONG = 3600.0


@outlast.step
async def do(what: str) -> str:
    done[what] += 1
    await takes(1)
    if what in hooks:
        await hooks[what]()
    if what in broken:
        raise ConnectionError(f"{what} is broken")
    return what


@outlast.step
async def book(what: str) -> str:
    done[what] += 1
    return what


@book.compensate
async def unbook(what: str) -> None:
    done[f"un{what}"] += 1


@outlast.workflow
async def kid(name: str, seconds: float) -> str:
    """Does something that can be undone, and takes its time."""
    await book(name)
    await outlast.sleep(seconds)
    return f"{name} is back"


@outlast.workflow
async def stays(name: str) -> None:
    """Waits for ever."""
    await outlast.wait_for_signal(name)


async def children_of(opened: VirtualApp, run_id: str) -> dict[str, Status]:
    """The statuses of a run's children, by id."""
    return {run.id: run.status async for run in opened.client.find(parent=run_id)}


async def settled(opened: VirtualApp, run_id: str) -> Run:
    """The record of a run once it has ended, however."""
    with suppress(RunFailed):
        await opened.get(run_id).result(timeout=10 * LONG)
    return await opened.store.get(run_id)


# -- continue_as_new ------------------------------------------------------------------------------


@outlast.workflow
async def two_lives(life: int) -> str:
    kids = [
        kid(f"cancelled {life}", LONG),
        outlast.child(kid(f"abandoned {life}", LONG), parent_close="abandon"),
    ]
    tasks = [asyncio.create_task(one) for one in kids]
    await outlast.sleep(LONG / 2)
    if life == 0:
        outlast.continue_as_new(two_lives(1))
    return ", ".join(await asyncio.gather(*tasks))


async def continue_as_new_cancels_its_children(store: Store, clock: VirtualClock) -> None:
    """The commit that ends a life asks its children to stop, and they compensate; one that is to outlive
    its parent goes on untouched. Neither is taken for a child of the next life, nor answers it."""
    async with app(two_lives, kid, store=store, clock=clock) as opened:
        await opened.start(two_lives(0), id="p")
        await clock.sleep(LONG / 4)
        before = await children_of(opened, "p")
        assert await opened.get("p").result() == "cancelled 1 is back, abandoned 1 is back"
        first = [(await opened.get(id).status()).status for id in sorted(before)]
    assert first == [Status.CANCELLED, Status.COMPLETED]
    assert done == {
        "cancelled 0": 1, "uncancelled 0": 1, "abandoned 0": 1, "cancelled 1": 1, "abandoned 1": 1,
    }  # fmt: skip


@outlast.workflow
async def goes_round(life: int) -> str:
    await kid(f"kid {life}", 1.0)
    if life < 3:
        outlast.continue_as_new(goes_round(life + 1))
    return f"life {life}"


async def ended_children_go_with_their_life(store: Store, clock: VirtualClock) -> None:
    """What a run keeps through its lives is bounded: children that have ended go with the life."""
    async with app(goes_round, kid, store=store, clock=clock) as opened:
        await opened.start(goes_round(0), id="p")
        assert await opened.get("p").result() == "life 3"
        assert len(await children_of(opened, "p")) == 1
    assert sum(done.values()) == 4


@outlast.workflow
async def is_cancelled_late(life: int) -> str:
    if life == 0:
        await do("life 0")
        outlast.continue_as_new(is_cancelled_late(1))
    await outlast.sleep(LONG)
    return "never"


async def a_cancel_reaches_the_next_life(store: Store, clock: VirtualClock) -> None:
    """A cancel that is acknowledged when the code has just decided to continue as new takes effect in the
    next life."""
    async with app(is_cancelled_late, store=store, clock=clock) as opened:

        async def cancel() -> None:
            await opened.get("p").cancel("enough")

        hooks["life 0"] = cancel
        await opened.start(is_cancelled_late(0), id="p")
        run = await settled(opened, "p")
    assert (run.status, run.error) == (Status.CANCELLED, "enough")


# -- the end of a parent --------------------------------------------------------------------------


@outlast.workflow
async def ends_at_once() -> str:
    waiting = asyncio.create_task(stays("never"))
    await asyncio.sleep(0)
    return f"waiting: {not waiting.done()}"


async def a_child_of_the_last_turn_is_cancelled(store: Store, clock: VirtualClock) -> None:
    """A child that is asked for in the turn in which its parent ends is begun and cancelled by the same
    commit: none is left behind."""
    async with app(ends_at_once, stays, store=store, clock=clock) as opened:
        await opened.start(ends_at_once(), id="p")
        assert await opened.get("p").result() == "waiting: True"
        await clock.sleep(LONG)
        found = await children_of(opened, "p")
    assert list(found.values()) == [Status.CANCELLED]


@outlast.workflow
async def begins_when_told() -> None:
    await outlast.wait_for_signal("go")
    await stays("never")


class Between(WrappedStore):
    """A store that does something after a history was read, once."""

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        answer = await call()
        if name == "history" and "history" in hooks:
            await hooks.pop("history")()
        return answer


async def terminate_cancels_a_child_that_begins_meanwhile(
    store: Store, clock: VirtualClock
) -> None:
    """A run may begin a child after its history was read and before it is ended: that child is cancelled
    too."""
    async with app(begins_when_told, stays, store=store, clock=clock) as opened:
        await opened.start(begins_when_told(), id="p")

        async def go() -> None:
            await opened.get("p").signal("go")
            while not await children_of(opened, "p"):
                await clock.sleep(1)

        hooks["history"] = go
        await Client(Between(store), codec=JsonCodec()).get("p").terminate()
        await clock.sleep(LONG)
        found = await children_of(opened, "p")
    assert list(found.values()) == [Status.CANCELLED]


@outlast.workflow
async def continues_when_told(life: int, last: int) -> None:
    if life < last:
        await outlast.wait_for_signal("go")
        outlast.continue_as_new(continues_when_told(life + 1, last))


async def _terminated_while_it_continues(store: Store, clock: VirtualClock, last: int) -> Run:
    async with app(continues_when_told, store=store, clock=clock) as opened:
        await opened.start(continues_when_told(1, last), id="p")
        before = (await opened.get("p").status()).uid

        async def go() -> None:
            await opened.get("p").signal("go")
            while (run := await opened.get("p").status()).uid == before or (
                last == 2 and not run.status.terminal
            ):
                await clock.sleep(1)

        hooks["history"] = go
        await Client(Between(store), codec=JsonCodec()).get("p").terminate()
        return await opened.store.get("p")


async def terminate_ends_the_life_that_it_finds(store: Store, clock: VirtualClock) -> None:
    """A run may continue as new after its history was read and before it is ended: the new life ends."""
    ended = await _terminated_while_it_continues(store, clock, 3)
    assert ended.status is Status.CANCELLED


async def terminate_says_that_the_next_life_has_ended(store: Store, clock: VirtualClock) -> None:
    """The same if the new life has ended by then: the caller is told that, and not of a newer claim."""
    with suppress(RunClosed):
        await _terminated_while_it_continues(store, clock, 2)
        raise AssertionError("it had ended, and was terminated")


async def a_replaced_run_cancels_its_children(store: Store, clock: VirtualClock) -> None:
    """A start that replaces a run ends it: its children are asked to stop, and are not the new run's."""
    async with app(two_lives, kid, store=store, clock=clock) as opened:
        await opened.start(two_lives(1), id="p")
        await clock.sleep(LONG / 4)
        again = await opened.start(two_lives(1), id="p", on_conflict="replace")
        assert await again.result() == "cancelled 1 is back, abandoned 1 is back"
        await clock.sleep(2 * LONG)
        found = await children_of(opened, "p")
    assert Counter(found.values()) == {Status.COMPLETED: 3, Status.CANCELLED: 1}
    assert done == {"cancelled 1": 2, "uncancelled 1": 1, "abandoned 1": 2}


# -- retry ----------------------------------------------------------------------------------------


@outlast.workflow
async def fails_beside_its_child(close: str) -> str:
    task = asyncio.create_task(
        outlast.child(kid("kid", LONG), parent_close="abandon" if close else "cancel")
    )
    await outlast.sleep(10)
    await do("shaky")
    return await task


async def retry_waits_for_the_same_child(store: Store, clock: VirtualClock) -> None:
    """A child that outlives the failure of its parent is adopted by the retried life: same run, done
    once, and its result arrives."""
    async with app(fails_beside_its_child, kid, store=store, clock=clock) as opened:
        await _failed(opened, fails_beside_its_child, "abandon")
        before = await children_of(opened, "p")
        await opened.get("p").retry()
        assert await opened.get("p").result() == "kid is back"
        assert set(await children_of(opened, "p")) == set(before)
    assert done == {"shaky": 2, "kid": 1}


async def retry_finds_a_child_that_has_ended_meanwhile(store: Store, clock: VirtualClock) -> None:
    """A child that completed while its parent was closed could not tell it: the retried life looks."""
    async with app(fails_beside_its_child, kid, store=store, clock=clock) as opened:
        await _failed(opened, fails_beside_its_child, "abandon")
        await clock.sleep(2 * LONG)
        await opened.get("p").retry()
        assert await opened.get("p").result(timeout=LONG) == "kid is back"
    assert done == {"shaky": 2, "kid": 1}


@outlast.workflow
async def shaky_kid() -> str:
    return await do("shaky")


@outlast.workflow
async def has_a_named_child() -> str:
    return await outlast.child(shaky_kid(), id="named")


async def retry_starts_a_deleted_child_again(store: Store, clock: VirtualClock) -> None:
    """A child with an explicit id that failed and was deleted is started again: there is no run to wait for."""
    async with app(has_a_named_child, shaky_kid, store=store, clock=clock) as opened:
        broken.add("shaky")
        run = await opened.start(has_a_named_child(), id="p")
        with pytest.raises(RunFailed):
            await run.result()
        broken.clear()
        assert await opened.get("named").delete()
        await run.retry()
        assert await run.result() == "shaky"
    assert done == {"shaky": 2}


async def retry_begins_a_cancelled_child_again(store: Store, clock: VirtualClock) -> None:
    """A child that was cancelled with its parent is undone, and begins again under another id."""
    async with app(fails_beside_its_child, kid, store=store, clock=clock) as opened:
        await _failed(opened, fails_beside_its_child, "")
        await opened.get("p").retry()
        assert await opened.get("p").result() == "kid is back"
        found = await children_of(opened, "p")
    assert sorted(found.values()) == [Status.CANCELLED, Status.COMPLETED]
    assert done == {"shaky": 2, "kid": 2, "unkid": 1}


@outlast.workflow
async def has_a_child_after_its_failure() -> str:
    try:
        await do("shaky")
    except StepFailed:
        await kid("kid", 10.0)
        raise
    return await kid("kid", 10.0)


async def retry_adopts_a_child_that_was_begun_after_the_failure(
    store: Store, clock: VirtualClock
) -> None:
    """What was recorded after the failure is cut off. A child that was begun there and has completed is
    not begun again by the same call."""
    async with app(has_a_child_after_its_failure, kid, store=store, clock=clock) as opened:
        await _failed(opened, has_a_child_after_its_failure)
        await opened.get("p").retry()
        assert await opened.get("p").result() == "kid is back"
    assert done == {"shaky": 2, "kid": 1}


@outlast.step(at_most_once=True)
async def once(what: str, seconds: float) -> str:
    done[what] += 1
    await takes(seconds)
    if what in broken:
        raise ConnectionError(f"{what} is broken")
    return what


@outlast.workflow
async def fails_beside_its_steps() -> list[Any]:
    results: list[Any] = await asyncio.gather(
        do("shaky"),
        once("slow", 5.0),
        once("poor", 6.0),
        outlast.map(do, ["x", "y"], concurrency=1),
    )
    return results


async def retry_keeps_what_ended_after_the_failure(store: Store, clock: VirtualClock) -> None:
    """What ran beside the failure is awaited, and its results are recorded: a retry does not do it again.
    What failed there begins again, and nothing of it counts as the death of a process."""
    async with app(fails_beside_its_steps, store=store, clock=clock) as opened:
        broken.add("poor")
        await _failed(opened, fails_beside_its_steps)
        broken.update(("shaky", "poor"))
        await opened.get("p").retry()
        assert (await settled(opened, "p")).status is Status.FAILED
        broken.clear()
        await opened.get("p").retry()
        assert await opened.get("p").result() == ["shaky", "slow", "poor", ["x", "y"]]
    assert done == {"shaky": 3, "slow": 1, "poor": 3, "x": 1, "y": 1}


@outlast.workflow
async def fails_beside_a_branch() -> str:
    async def branch() -> None:
        await do("first")
        await do("second")

    async def cleans() -> None:
        try:
            await outlast.sleep(LONG)
        finally:
            await do("clean")

    cleaning = asyncio.create_task(cleans())
    shaky, _ = await asyncio.gather(do("shaky"), branch(), return_exceptions=True)
    cleaning.cancel()
    await asyncio.wait([cleaning])
    if isinstance(shaky, Exception):
        raise shaky
    return "mended"


async def retry_keeps_what_a_branch_did_after_the_failure(
    store: Store, clock: VirtualClock
) -> None:
    """A branch goes on when another has failed: what it asks for then is not done again by the same call.
    What a branch did because it was cancelled belongs to the failure."""
    async with app(fails_beside_a_branch, store=store, clock=clock) as opened:
        await _failed(opened, fails_beside_a_branch)
        await opened.get("p").retry()
        assert await opened.get("p").result() == "mended"
    assert done == {"shaky": 2, "first": 1, "second": 1, "clean": 2}


@outlast.workflow
async def asks_elsewhere(life: int) -> str:
    async def branch() -> None:
        await do("first")
        if life or "shaky" in broken:
            await do("second")

    parts = (do("shaky"), branch())
    shaky, _ = await asyncio.gather(*parts, return_exceptions=True)
    if isinstance(shaky, Exception):
        raise shaky
    if life == 0:
        outlast.continue_as_new(asks_elsewhere(1))
    return str(shaky)


async def what_a_retry_keeps_is_not_for_the_next_life(store: Store, clock: VirtualClock) -> None:
    """A result that the retried run has not asked for is no result of the life after it."""
    async with app(asks_elsewhere, store=store, clock=clock) as opened:
        await _failed(opened, asks_elsewhere, 0)
        await opened.get("p").retry()
        assert await opened.get("p").result() == "shaky"
    assert done == {"shaky": 3, "first": 2, "second": 2}


@outlast.workflow
async def cuts_off(only_once: bool) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks: list[Any] = [group.create_task(do("shaky"))]
        if only_once:
            tasks.append(group.create_task(once("slow", LONG)))
        else:
            tasks.append(group.create_task(linger("slow")))
            tasks.append(group.create_task(outlast.map(linger, ["x"])))
    return [task.result() for task in tasks]


@outlast.step
async def linger(what: str) -> str:
    done[what] += 1
    await takes(LONG)
    return what


async def retry_does_not_count_what_was_cut_off(store: Store, clock: VirtualClock) -> None:
    """What a group has cut off because of the failure begins again, however often the run is retried: no
    process has died. What must not be repeated is not, and the error says so."""
    async with app(cuts_off, store=store, clock=clock) as opened:
        await _failed(opened, cuts_off, False)
        for _ in range(6):
            broken.add("shaky")
            await opened.get("p").retry()
            assert "shaky is broken" in str((await settled(opened, "p")).error)
        broken.clear()
        await opened.get("p").retry()
        assert await opened.get("p").result() == ["shaky", "slow", ["x"]]
        await opened.get("p").delete()
        done.clear()
        await _failed(opened, cuts_off, True)
        await opened.get("p").retry()
        assert "it was cut off" in str((await settled(opened, "p")).error)
    assert done["slow"] == 1


@outlast.step
async def book_slowly() -> None:
    done["slow"] += 1
    await takes(60)
    raise ConnectionError("no room")


@book_slowly.compensate
async def unbook_slowly(_: None) -> None:
    done["unslow"] += 1


@outlast.workflow
async def leaves_a_step() -> str:
    with suppress(TimeoutError):
        async with asyncio.timeout(2):
            await book_slowly()
    return await do("shaky")


async def retry_does_not_try_again_what_was_left(store: Store, clock: VirtualClock) -> None:
    """A step that the code had left before the failure, and that failed after it, has no one who waits for it:
    the retried run does not do it again."""
    async with app(leaves_a_step, store=store, clock=clock) as opened:
        await _failed(opened, leaves_a_step)
        await opened.get("p").retry()
        assert await opened.get("p").result() == "shaky"
    assert done == {"slow": 1, "shaky": 2}


@outlast.step(retry=outlast.Retry(attempts=2))
async def mends(times: int) -> str:
    done["mends"] += 1
    if done["mends"] < times:
        raise ConnectionError("not yet")
    return "mended"


@outlast.workflow
async def fails_in_a_scope() -> str:
    return await outlast.scope(mends, 4)


async def retry_tries_as_often_again(store: Store, clock: VirtualClock) -> None:
    """A step that failed gets all its attempts again, also inside a scope."""
    async with app(fails_in_a_scope, store=store, clock=clock) as opened:
        await _failed(opened, fails_in_a_scope)
        await opened.get("p").retry()
        assert await opened.get("p").result() == "mended"
    assert done == {"mends": 4}


@outlast.workflow
async def is_shaky() -> str:
    return await do("shaky")


@outlast.workflow
async def works_beside_its_child() -> str:
    async def works() -> None:
        await do("work")

    child, _ = await asyncio.gather(is_shaky(), works())
    return str(child)


async def retry_keeps_what_was_done_beside_a_child_that_failed(
    store: Store, clock: VirtualClock
) -> None:
    """A child that failed begins again; what completed while it ran is not done again."""
    async with app(works_beside_its_child, is_shaky, store=store, clock=clock) as opened:
        await _failed(opened, works_beside_its_child)
        await opened.get("p").retry()
        assert await opened.get("p").result() == "shaky"
    assert done == {"shaky": 2, "work": 1}


@outlast.workflow
async def takes_signals(undoable: bool) -> str:
    if undoable:
        await book("seat")
    first = await outlast.wait_for_signal("word", str)
    answer = await outlast.halt({"first": first}, str) if undoable else "-"
    await do("shaky")
    return " ".join(
        [first, answer, *[await outlast.wait_for_signal("word", str) for _ in range(2)]]
    )


async def retry_keeps_signals(store: Store, clock: VirtualClock) -> None:
    """Signals that were not consumed wait for the retried life; a key that was used stays used."""
    async with app(takes_signals, store=store, clock=clock) as opened:
        await opened.start(takes_signals(False), id="p")
        for word in ("one", "two", "three"):
            await opened.get("p").signal("word", word, dedup=word)
        broken.add("shaky")
        await settled(opened, "p")
        broken.clear()
        await opened.get("p").retry()
        await opened.get("p").signal("word", "one", dedup="one")
        assert await opened.get("p").result(timeout=LONG) == "one - two three"


async def retry_gives_consumed_signals_back(store: Store, clock: VirtualClock) -> None:
    """A run that was undone begins before what it had consumed: signals come again, in their order, and
    so does the answer of a person."""
    async with app(takes_signals, store=store, clock=clock) as opened:
        await opened.start(takes_signals(True), id="p")
        for word in ("one", "two", "three"):
            await opened.get("p").signal("word", word, dedup=word)
        while (await opened.get("p").status()).halt_data is None:
            await clock.sleep(1)
        broken.add("shaky")
        await opened.get("p").resume("yes")
        await settled(opened, "p")
        broken.clear()
        await opened.get("p").retry()
        await opened.get("p").signal("word", "one", dedup="one")
        assert await opened.get("p").result(timeout=LONG) == "one yes two three"
    assert done == {"seat": 2, "unseat": 1, "shaky": 2}


# -- updates --------------------------------------------------------------------------------------


@outlast.workflow
async def entity(total: int) -> int:
    more = asyncio.Event()

    @outlast.on_update
    async def add(number: int) -> int:
        nonlocal total
        total += number
        more.set()
        return total

    await book("seat")
    await more.wait()
    if total in (3, 4):
        await do("shaky")
    if total < 6:
        outlast.continue_as_new(entity(total))
    return total


async def answers_outlive_any_number_of_lives(store: Store, clock: VirtualClock) -> None:
    """An update is done once and has one answer: after several lives, after a retry, after the end."""
    async with app(entity, store=store, clock=clock) as opened:
        await opened.start(entity(0), id="p")
        for number in (1, 2):
            assert await opened.get("p").update("add", 1, int, dedup=f"key {number}") == number
        broken.add("shaky")
        assert await opened.get("p").update("add", 1, int, dedup="key 3") == 3
        assert (await settled(opened, "p")).status is Status.FAILED
        broken.clear()
        await opened.get("p").retry()
        for number in (1, 2, 3):
            again = await opened.get("p").update("add", 1, int, dedup=f"key {number}", timeout=LONG)
            assert again == number
        for number in (4, 5, 6):
            assert await opened.get("p").update("add", 1, int, dedup=f"key {number}") == number
        assert await opened.get("p").result() == 6
        assert await opened.get("p").update("add", 1, int, dedup="key 1") == 1


# -- depth ----------------------------------------------------------------------------------------


@outlast.workflow
async def descends(depth: int) -> int:
    return await descends(depth - 1) if depth else 0


async def children_nest_to_any_depth(store: Store, clock: VirtualClock) -> None:
    """Ids of children stay short however deep they are."""
    async with app(descends, store=store, clock=clock) as opened:
        await opened.start(descends(100), id="p")
        assert await opened.get("p").result() == 0
        ids = [run.id async for run in opened.client.find(workflow="descends")]
    assert len(ids) == 101
    assert max(map(len, ids)) < 700


# -- fork -----------------------------------------------------------------------------------------


async def a_fork_has_children_of_its_own(store: Store, clock: VirtualClock) -> None:
    """A fork begins the children that its history waits for; those of the other run stay as they are."""
    async with app(fails_beside_its_child, kid, store=store, clock=clock) as opened:
        await _failed(opened, fails_beside_its_child, "abandon")
        before = await children_of(opened, "p")
        await opened.get("p").fork("do", id="q")
        assert await opened.get("q").result() == "kid is back"
        assert set(await children_of(opened, "p")) == set(before)
        assert len(await children_of(opened, "q")) == 1
    assert done["kid"] == 2


async def _failed(opened: VirtualApp, workflow: Any, *args: Any) -> None:
    broken.add("shaky")
    await opened.start(workflow(*args), id="p")
    assert (await settled(opened, "p")).status is Status.FAILED
    broken.clear()


STORIES: tuple[Story, ...] = (
    continue_as_new_cancels_its_children,
    ended_children_go_with_their_life,
    a_cancel_reaches_the_next_life,
    a_child_of_the_last_turn_is_cancelled,
    terminate_cancels_a_child_that_begins_meanwhile,
    terminate_ends_the_life_that_it_finds,
    terminate_says_that_the_next_life_has_ended,
    a_replaced_run_cancels_its_children,
    retry_waits_for_the_same_child,
    retry_finds_a_child_that_has_ended_meanwhile,
    retry_starts_a_deleted_child_again,
    retry_begins_a_cancelled_child_again,
    retry_adopts_a_child_that_was_begun_after_the_failure,
    retry_keeps_what_ended_after_the_failure,
    retry_keeps_what_was_done_beside_a_child_that_failed,
    retry_keeps_what_a_branch_did_after_the_failure,
    what_a_retry_keeps_is_not_for_the_next_life,
    retry_does_not_count_what_was_cut_off,
    retry_does_not_try_again_what_was_left,
    retry_tries_as_often_again,
    retry_keeps_signals,
    retry_gives_consumed_signals_back,
    answers_outlive_any_number_of_lives,
    children_nest_to_any_depth,
    a_fork_has_children_of_its_own,
)


async def tell(story: Story, store: Store, clock: VirtualClock) -> None:
    """Let a story happen on a store."""
    done.clear()
    broken.clear()
    hooks.clear()
    async with store:
        await story(store, clock)
