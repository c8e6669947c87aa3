"""Control: what can be done to runs from outside, whatever they are and wherever they stand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw, Struct

import outlast
from outlast.errors import (
    ChildFailed,
    InvalidValue,
    RunCancelled,
    RunFailed,
    RunsOpen,
    StepFailed,
)
from outlast.model import Event, Status
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualApp, VirtualClock, app
from outlast.testing import sleep as takes

ran: list[str] = []
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    ran.clear()
    broken.clear()


@outlast.step
async def do(what: str) -> str:
    ran.append(what)
    await takes(10)
    if what in broken:
        raise ConnectionError(f"{what} is broken")
    return what


@do.compensate
async def undo(what: str) -> None:
    ran.append(f"undo {what}")


@outlast.step
async def plain(what: str) -> str:
    ran.append(what)
    await takes(1)
    if what in broken:
        raise ConnectionError(f"{what} is broken")
    return what


def told(history: list[Event]) -> list[str]:
    return [f"{event.type} {event.step_name}".strip() for event in history]


async def fails(app: VirtualApp, run: outlast.RunHandle[Any]) -> None:
    with pytest.raises(RunFailed):
        await run.result()
    assert (await run.status()).status is Status.FAILED


# -- retry ----------------------------------------------------------------------------------------


@outlast.workflow
async def side_by_side() -> list[str]:
    async def twice(first: str, second: str) -> list[str]:
        return [await plain(first), await plain(second)]

    both = await asyncio.gather(twice("a", "b"), twice("c", "d"), return_exceptions=True)
    for one in both:
        if isinstance(one, BaseException):
            raise one
    return [name for one in both if not isinstance(one, BaseException) for name in one]


@pytest.mark.proves("I8", "D-40")
async def test_a_retry_keeps_what_other_branches_have_done() -> None:
    """What was done beside the step that failed, before it failed, is not done again."""
    broken.add("b")
    async with app(side_by_side) as testing:
        run = await testing.start(side_by_side(), id="it")
        await fails(testing, run)
        assert (await testing.get("it").status()).recover_to == "0/plain#2"
        ran.clear()
        broken.clear()
        await testing.get("it").retry()
        assert await run.result() == ["a", "b", "c", "d"]
    # The two were under way together when one of them failed.
    assert ran in (["b"], ["d", "b"], ["b", "d"])


@outlast.workflow
async def books_and_pays() -> str:
    await plain("look")
    await do("book")
    return await plain("pay")


@pytest.mark.proves("I20")
async def test_a_retry_after_compensation_does_again_what_was_undone() -> None:
    """A booking that was cancelled must be made again: its recorded result is no longer true."""
    broken.add("pay")
    async with app(books_and_pays) as testing:
        run = await testing.start(books_and_pays(), id="it")
        await fails(testing, run)
        assert ran == ["look", "book", "pay", "undo book"]
        broken.clear()
        await testing.get("it").retry()
        assert await run.result() == "pay"
        assert ran == ["look", "book", "pay", "undo book", "book", "pay"]
        assert "compensation.started undo" not in told(await testing.get("it").history())


@outlast.workflow
async def maps_and_fails() -> list[str]:
    return await outlast.map(plain, ["a", "b", "c"], concurrency=1)


@pytest.mark.proves("I8", "I19")
async def test_a_retry_of_a_map_does_only_what_is_missing() -> None:
    """Items that are done stay done, those that failed are tried again."""
    broken.add("b")
    async with app(maps_and_fails) as testing:
        run = await testing.start(maps_and_fails(), id="it")
        await fails(testing, run)
        ran.clear()
        broken.clear()
        await testing.get("it").retry()
        assert await run.result() == ["a", "b", "c"]
    assert ran == ["b", "c"]


async def part() -> str:
    return await plain("first") + await plain("second")


@outlast.workflow
async def has_a_part() -> str:
    return await outlast.scope(part)


@pytest.mark.proves("I8")
async def test_a_retry_goes_on_inside_a_scope() -> None:
    """A scope that failed is opened again at the step that failed in it."""
    broken.add("second")
    async with app(has_a_part) as testing:
        run = await testing.start(has_a_part(), id="it")
        await fails(testing, run)
        broken.clear()
        await testing.get("it").retry()
        assert await run.result() == "firstsecond"
    assert ran == ["first", "second", "second"]


@outlast.workflow
async def child() -> str:
    return await plain("child")


@outlast.workflow
async def parent() -> str:
    first = await plain("parent")
    return first + await child()


@pytest.mark.proves("I21")
async def test_a_retry_begins_a_failed_child_anew() -> None:
    """The parent is not failed again by the old outcome of its child."""
    broken.add("child")
    async with app(parent, child) as testing:
        run = await testing.start(parent(), id="it")
        await fails(testing, run)
        broken.clear()
        await testing.get("it").retry()
        assert await run.result() == "parentchild"
    assert ran == ["parent", "child", "child"]


@outlast.workflow
async def waits_beside_a_child() -> str:
    waiting = asyncio.create_task(sleeper())
    await plain("own")
    return await waiting


@outlast.workflow
async def sleeper() -> str:
    await outlast.sleep(hours=1)
    return "slept"


@pytest.mark.proves("I21")
async def test_a_retry_begins_a_child_anew_that_was_cancelled_with_its_parent() -> None:
    """Otherwise the parent would wait for ever for somebody who is not there any more."""
    broken.add("own")
    async with app(waits_beside_a_child, sleeper) as testing:
        run = await testing.start(waits_beside_a_child(), id="it")
        await fails(testing, run)
        broken.clear()
        await testing.get("it").retry()
        assert await run.result() == "slept"


@outlast.workflow
async def handles_one_failure() -> str:
    try:
        await plain("optional")
    except StepFailed:
        await plain("instead")
    if "code" in broken:
        raise ValueError("a bug")
    return await plain("last")


@pytest.mark.proves("I8")
async def test_a_retry_after_an_error_of_the_code_keeps_all_that_was_done() -> None:
    """A failure that the code has handled is not what a retry begins from."""
    broken.update({"optional", "code"})
    async with app(handles_one_failure) as testing:
        run = await testing.start(handles_one_failure(), id="it")
        await fails(testing, run)
        assert (await testing.get("it").status()).recover_to is None
        ran.clear()
        broken.clear()
        await testing.get("it").retry()
        assert await run.result() == "last"
    assert ran == ["last"]


# -- fork -----------------------------------------------------------------------------------------


@outlast.workflow
async def greets(greeting: str, name: str = "ann") -> str:
    luck = str(outlast.uuid4())
    kept = await plain(luck)
    final = await plain(f"{greeting} {name}")
    return f"{final} {kept == luck}"


@pytest.mark.proves("I8")
async def test_a_fork_shares_the_past_and_goes_its_own_way() -> None:
    """It has the history up to a step, other input if wanted, and the luck of the original."""
    async with app(greets) as testing:
        run = await testing.start(greets("hello"), id="it")
        assert await run.result() == "hello ann True"
        ran.clear()
        fork = await testing.get("it").fork("plain#2", id="other", input={"name": "bob"})
        assert await fork.result() == "hello bob True"
        assert ran == ["hello bob"]
        assert await run.result() == "hello ann True"
        third = await testing.get("it").fork("plain#2")
        assert await third.result() == "hello ann True"


# -- cancel, terminate, delete, replace -----------------------------------------------------------


@outlast.workflow
async def keeps_house() -> None:
    await asyncio.gather(sleeper(), outlast.child(sleeper(), id="own"), guest())


@outlast.workflow
async def guest() -> str:
    return await outlast.child(sleeper(), parent_close="abandon")


@pytest.mark.proves("I17", "I21")
async def test_terminate_takes_the_children_along() -> None:
    """They are cancelled as by the end of their parent, but for those that are on their own."""
    async with app(keeps_house, sleeper, guest) as testing:
        run = await testing.start(keeps_house(), id="it")
        await testing.clock.settle()
        await testing.get("it~2/child.guest").terminate("out")
        await testing.get("it").terminate("closed")
        with pytest.raises(RunCancelled, match="closed"):
            await run.result()
        await testing.clock.sleep(2 * 3600)
        statuses = {run.id: run.status async for run in testing.client.find()}
    assert statuses == {
        "it": Status.CANCELLED,
        "it~0/child.sleeper": Status.CANCELLED,
        "own": Status.CANCELLED,
        "it~2/child.guest": Status.CANCELLED,
        "it~2/child.guest~child.sleeper": Status.COMPLETED,
    }


@pytest.mark.proves("I17")
@pytest.mark.parametrize("reason", ["", "two\nlines", "a" * 5000, "fine"])
async def test_cancel_takes_any_reason(reason: str) -> None:
    """A person writes what a person wants."""
    async with app(sleeper) as testing:
        run = await testing.start(sleeper())
        await run.cancel(reason)
        with pytest.raises(RunCancelled):
            await run.result()
        assert (await testing.get(run.id).status()).error == (
            reason or "the workflow cancelled itself"
        )


@pytest.mark.proves("I17")
async def test_runs_whose_code_is_gone_or_history_is_broken_can_be_ended() -> None:
    """Terminate and delete work on a run of unknown code and on one that cannot be read."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(sleeper, store=store, clock=clock) as testing:
        for id in ("one", "two", "three"):
            await testing.start(sleeper(), id=id)
        await clock.settle()
    for id in ("one", "two", "three"):
        event = Event(type="from.the.future", run_id=id, data=Raw(b"{}"))
        run = await store.get(id)
        life = store._tables.lives[id]
        life.events.append(event)
        life.update(sequence=run.sequence + 1)
    async with app(child, store=store, clock=clock) as testing:
        await testing.get("one").terminate("gone")
        with pytest.raises(RunsOpen):
            await testing.get("two").delete()
        assert await testing.get("two").delete(force=True) is True
        assert (await testing.get("one").status()).status is Status.CANCELLED
    async with app(sleeper, store=store, clock=clock) as testing:
        await clock.sleep(7200)
        halted = await testing.get("three").status()
        assert halted.status is Status.HALTED
        assert "from.the.future" in str(halted.error)
        await testing.get("three").terminate()


@pytest.mark.proves("I18")
async def test_a_run_that_is_deleted_or_replaced_while_it_works() -> None:
    """The old life never writes into the new one."""
    async with app(parent, child) as testing:
        await testing.start(parent(), id="it")
        await testing.clock.sleep(0.5)
        assert await testing.get("it").delete(force=True)
        again = await testing.start(parent(), id="it")
        await testing.clock.sleep(0.5)
        once_more = await testing.start(parent(), id="it", on_conflict="replace")
        assert await once_more.result() == "parentchild"
        assert await again.result() == "parentchild"
        history = told(await testing.get("it").history())
    assert history.count("workflow.started") == 1
    assert history.count("step.completed plain") == 1
    assert ran.count("parent") == 3


# -- pause ----------------------------------------------------------------------------------------


@outlast.workflow
async def maps_long() -> int:
    return len(await outlast.map(plain, [str(number) for number in range(40)], concurrency=2))


@pytest.mark.proves("I19")
async def test_a_map_rests_while_its_run_is_paused() -> None:
    """Items that run come to their end, no other begins, and often pausing is not failing."""
    async with app(maps_long) as testing:
        run = await testing.start(maps_long(), id="it")
        for _ in range(5):
            await testing.clock.sleep(1.5)
            await testing.get("it").pause()
            await testing.clock.sleep(5)
            done = len(ran)
            assert (await run.status()).status is Status.PAUSED
            await testing.clock.sleep(3600)
            assert len(ran) == done
            await run.resume()
        assert await run.result() == 40
    assert sorted(ran, key=int) == [str(number) for number in range(40)]


@pytest.mark.proves("I15", "I19")
async def test_a_request_to_pause_waits_in_the_inbox() -> None:
    """While a step runs the run is not paused yet: the request stays where a crash does not lose it, until the
    commit that pauses the run."""
    clock = VirtualClock()
    async with MemoryStore(clock=clock) as store, app(books_and_sleeps, store=store) as testing:
        run = await testing.start(books_and_sleeps(), id="it")
        await clock.sleep(1)
        await testing.get("it").pause()
        await clock.sleep(1)
        assert (await run.status()).status is Status.RUNNING
        assert [item.kind for item in await store.inbox("it")] == ["pause"]
        await clock.sleep(20)
        assert (await run.status()).status is Status.PAUSED
        assert await store.inbox("it") == []


@pytest.mark.proves("I17")
async def test_a_paused_run_can_be_cancelled() -> None:
    """What it does on its way out does not wait for anybody."""
    async with app(books_and_sleeps) as testing:
        run = await testing.start(books_and_sleeps(), id="it")
        await testing.clock.sleep(20)
        await testing.get("it").pause()
        await testing.clock.settle()
        assert (await run.status()).status is Status.PAUSED
        await run.cancel("no more")
        with pytest.raises(RunCancelled, match="no more"):
            await run.result()
    assert ran == ["book", "undo book"]


@outlast.workflow
async def books_and_sleeps() -> None:
    await do("book")
    await outlast.sleep(hours=1)


@pytest.mark.proves("I15", "I16")
async def test_a_paused_run_takes_no_signal_and_no_timer() -> None:
    """They wait with it."""

    @outlast.workflow
    async def listens() -> list[str]:
        first = await outlast.wait_for_signal("go", str)
        await outlast.sleep(hours=1)
        return [first, await plain("done")]

    async with app(listens) as testing:
        run = await testing.start(listens(), id="it")
        await testing.clock.settle()
        await testing.get("it").pause()
        await testing.clock.settle()
        await run.signal("go", "now")
        await testing.clock.sleep(86400)
        assert told(await testing.get("it").history())[-1] == "signal.waiting signal:go"
        await run.resume()
        await testing.clock.settle()
        await testing.get("it").pause()
        await testing.clock.sleep(86400)
        assert told(await testing.get("it").history())[-1] == "timer.started timer"
        await run.resume()
        assert await run.result() == ["now", "done"]


# -- children with an id of their own -------------------------------------------------------------


@outlast.workflow
async def wants_a_child_called(id: str) -> str:
    try:
        return await outlast.child(sleeper(), id=id)
    except ChildFailed as failure:
        return failure.error


@pytest.mark.proves("I21")
async def test_a_child_whose_id_is_taken_is_not_waited_for() -> None:
    """The run that has the id is left alone, and the parent hears that it is another's."""
    async with app(wants_a_child_called, sleeper) as testing:
        stranger = await testing.start(sleeper(), id="taken")
        run = await testing.start(wants_a_child_called("taken"))
        assert await run.result() == "run 'taken' exists and has another parent or none"
        assert await stranger.result() == "slept"


@pytest.mark.proves("I21")
async def test_a_second_life_finds_the_child_of_the_first() -> None:
    """A parent that was replaced asks for the same child again, and takes its result."""
    async with app(wants_a_child_called, sleeper) as testing:
        run = await testing.start(wants_a_child_called("own"), id="it")
        assert await run.result() == "slept"
        again = await testing.start(wants_a_child_called("own"), id="it", on_conflict="replace")
        assert await again.result() == "slept"


# -- finding and asking ---------------------------------------------------------------------------


@pytest.mark.proves("D-36", "D-39", "D-40")
async def test_a_halted_run_is_found_by_its_status_and_shows_what_it_wants() -> None:
    """Status, halt data and the point to resume from are typed fields of the record."""

    @outlast.workflow
    async def asks() -> str:
        await plain("first")
        return await outlast.halt({"amount": 100}, str)

    async with app(asks, sleeper) as testing:
        run = await testing.start(asks(), id="it")
        await testing.start(sleeper())
        await testing.clock.sleep(2)
        [found] = [run async for run in testing.client.find(status="halted")]
        assert (found.id, found.status, found.wait_kind) == ("it", Status.HALTED, "halt")
        assert found.halt_data == {"amount": 100}
        assert found.recover_to == "halt"
        assert found.published == {}
        await run.resume("yes")
        assert await run.result() == "yes"
        assert (await testing.get("it").status()).halt_data is None


class Offer(Struct):
    price: int
    by: str


@pytest.mark.proves("I28", "D-36")
async def test_objects_can_be_sent_shown_and_answered() -> None:
    """An object with fields needs no annotation where it is given, only where it is read."""

    @outlast.workflow
    async def bargains() -> Offer:
        first = await outlast.wait_for_signal("offer", Offer)
        outlast.publish(first=first)
        second = await outlast.halt(first, Offer)
        return Offer(min(first.price, second.price), second.by)

    async with app(bargains) as testing:
        run = await testing.start(bargains(), id="it")
        await run.signal("offer", Offer(7, "ann"))
        await testing.clock.settle()
        assert await run.query("first", Offer) == Offer(7, "ann")
        assert (await testing.get("it").status()).halt_data == {"price": 7, "by": "ann"}
        await run.resume(Offer(5, "bob"))
        assert await run.result() == Offer(5, "bob")


@pytest.mark.proves("I32")
async def test_a_worker_without_the_code_leaves_a_run_alone() -> None:
    """It neither fails it nor claims it; one that has the code goes on."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(sleeper, store=store, clock=clock) as testing:
        await testing.start(sleeper(), id="it")
        await clock.settle()
    async with app(child, store=store, clock=clock) as testing:
        await clock.sleep(3600 + 60)
        run = await testing.get("it").status()
        assert (run.status, run.owner) == (Status.WAITING, None)
    async with app(sleeper, store=store, clock=clock) as testing:
        assert await testing.get("it").result() == "slept"


@pytest.mark.proves("I3")
async def test_attributes_can_be_set_at_the_start_and_later() -> None:
    """Runs are found by both; values that are set again are replaced."""

    @outlast.workflow
    async def labelled() -> None:
        outlast.set_attributes(stage="packing", urgent=True)
        await outlast.sleep(hours=1)
        outlast.set_attributes(stage="shipped")

    async def ids(testing: VirtualApp, **attributes: Any) -> list[str]:
        return [run.id async for run in testing.client.find(attributes=attributes)]

    async with app(labelled) as testing:
        run = await testing.start(labelled(), id="it", attributes={"customer": "ann"})
        await testing.clock.settle()
        assert await ids(testing, customer="ann", stage="packing", urgent=True) == ["it"]
        await run.result()
        assert await ids(testing, stage="packing") == []
        assert await ids(testing, customer="ann", stage="shipped") == ["it"]


async def test_what_a_run_shows_before_its_first_step_stays() -> None:
    """Values that are published, and attributes that are set, in the commit that starts the run are kept by later
    commits that publish and set others."""

    @outlast.workflow
    async def shows() -> None:
        outlast.publish(early=1)
        outlast.set_attributes(early=True)
        await plain("first")
        outlast.publish(late=2)
        outlast.set_attributes(late=True)

    async with app(shows) as testing:
        run = await testing.start(shows(), id="it")
        await run.result()
        view = await run.status()
        assert view.published == {"early": 1, "late": 2}
        assert view.attributes == {"early": True, "late": True}


@outlast.workflow
async def asks_a_person() -> str:
    return await outlast.halt("well?", str)


async def test_the_answer_to_a_halt_reaches_a_run_that_is_paused() -> None:
    """One that has halted and rests, as after an import: a value lets it go on and answers it, none
    only lets it go on."""
    async with app(asks_a_person) as testing:
        run = await testing.start(asks_a_person(), id="it")
        await testing.clock.settle()
        for _ in range(2):
            await testing.get("it").pause()
            await testing.clock.settle()
            assert (await run.status()).status is Status.PAUSED
            await run.resume()
            await testing.clock.settle()
            assert (await run.status()).status is Status.HALTED
        await testing.get("it").pause()
        await testing.clock.settle()
        await run.resume("yes")
        assert await run.result() == "yes"


async def test_a_value_that_nobody_asked_for_is_refused() -> None:
    """It would be lost without a word; the run rests as before."""
    async with app(books_and_sleeps) as testing:
        run = await testing.start(books_and_sleeps(), id="it")
        await testing.clock.sleep(20)
        await testing.get("it").pause()
        await testing.clock.settle()
        with pytest.raises(InvalidValue, match="has asked nothing"):
            await run.resume("yes")
        await testing.clock.settle()
        assert (await run.status()).status is Status.PAUSED
        await run.resume()
        await testing.clock.settle()
        assert (await run.status()).status is Status.WAITING
