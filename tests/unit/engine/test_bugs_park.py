"""A bug parks a run: a programming error of workflow code compensates nothing, and corrected code continues the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import ChildFailed, InvalidValue, RunCancelled, RunFailed, RunParked
from outlast.model import Status
from outlast.model.run import BUG, MISMATCH
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing import VirtualClock, app, replay
from outlast.testing import sleep as takes
from outlast.testing.crash_sweep import HARSH
from tests.unit.engine.watching import Watch

PATIENCE = 60
HALTED_BY_BUG = (Status.HALTED, BUG)

log: list[str] = []
EMPTY: dict[str, int] = {}


@pytest.fixture(autouse=True)
def nothing_logged() -> None:
    log.clear()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[Store]:
    if request.param == "memory":
        opened: Store = MemoryStore(clock=clock)
    else:
        opened = SqliteStore(tmp_path / "s.db", clock=clock)
    async with opened:
        yield opened


@outlast.step
async def book(what: str, seconds: float = 0) -> str:
    log.append(f"book {what}")
    if seconds:
        await takes(seconds)
    return what


@book.compensate
async def unbook(what: str) -> None:
    log.append(f"unbook {what}")


@outlast.step(at_most_once=True)
async def pay(what: str, seconds: float = 0) -> str:
    log.append(f"pay {what}")
    if seconds:
        await takes(seconds)
    return what


@outlast.step
def book_in_a_thread(what: str) -> str:
    log.append(f"book {what}")
    return what


@outlast.step(queue="far")
async def book_elsewhere(what: str) -> str:
    log.append(f"book {what}")
    return what


async def is_parked(testing: outlast.App, run_id: str = "r") -> outlast.RunView:
    """Wait until the run is parked; its record."""
    with pytest.raises(RunParked):
        await testing.get(run_id).result()
    run = await testing.get(run_id).status()
    assert (run.status, run.wait_kind, run.owner) == (*HALTED_BY_BUG, None)
    return run


# -- what is a bug ----------------------------------------------------------------------------------


class Missing(LookupError):
    """Derived from a programming error by the user: it is raised on purpose."""


@outlast.step(raises=KeyError)
async def raises_key_error() -> None:
    raise KeyError("of the step")


def raise_by_bug(kind: str) -> None:
    match kind:
        case "name":
            eval("undefined")
        case "attribute":
            eval("None.nothing")
        case "type":
            eval("len(1)")
        case "key":
            EMPTY[kind]
        case "index":
            [0][len(kind)]
        case "assert":
            assert not kind, "it does not hold"
        case "import":
            exec("import outlast.nothing")


async def raise_on_purpose(kind: str) -> None:
    match kind:
        case "value":
            raise ValueError("on purpose")
        case "key":
            raise KeyError("on purpose")
        case "derived":
            raise Missing("on purpose")
        case "step":
            await raises_key_error()
        case "misuse":
            raise outlast.errors.WorkflowMisuse("on purpose")


@outlast.workflow
async def breaks(kind: str) -> None:
    await book("a")
    raise_by_bug(kind)


@outlast.workflow
def breaks_in_a_thread(kind: str) -> None:
    assert book_in_a_thread("a") == "a"  # type: ignore[comparison-overlap]
    raise_by_bug(kind)


@outlast.workflow
async def raises(kind: str) -> None:
    await book("a")
    await raise_on_purpose(kind)


BUGS = ["name", "attribute", "type", "key", "index", "assert", "import"]


@pytest.mark.proves("I20", "I24")
@pytest.mark.parametrize("kind", BUGS)
async def test_a_bug_parks_the_run_with_its_place_and_undoes_nothing(kind: str) -> None:
    """`result()` raises at once and names the error, the line and what to do next."""
    async with app(breaks) as testing:
        run = await testing.start(breaks(kind), id="r")
        with pytest.raises(RunParked, match=r"(?s)its code raised \w+Error: .* at ") as it:
            await run.result()
        assert "outlast resume r" in str(it.value)
        await is_parked(testing)
    assert log == ["book a"]


async def test_a_bug_of_a_plain_workflow_parks_it() -> None:
    """The same in a thread."""
    async with app(breaks_in_a_thread) as testing:
        await testing.start(breaks_in_a_thread("key"), id="r")
        assert "in raise_by_bug" in str((await is_parked(testing)).error)


@pytest.mark.proves("I20")
@pytest.mark.parametrize("kind", ["value", "key", "derived", "step", "misuse"])
async def test_an_error_that_the_code_raises_on_purpose_fails_the_run(kind: str) -> None:
    """Also one of a class of programming errors, if the code has a `raise` for it, or its step declares it."""
    async with app(raises) as testing:
        with pytest.raises(RunFailed):
            await (await testing.start(raises(kind), id="r")).result()
    assert log == ["book a", "unbook a"]


@pytest.mark.parametrize(("park_on", "is_kept"), [((), False), ((LookupError,), True)])
async def test_an_app_says_what_parks(park_on: Any, is_kept: bool) -> None:
    """Nothing, or classes of its own, with all that are derived from them."""
    async with app(raises, breaks, park_on=park_on) as testing:
        with pytest.raises(RunParked if is_kept else RunFailed):
            await (await testing.start(raises("derived"), id="r")).result()
        with pytest.raises(RunFailed):
            await (await testing.start(breaks("type"), id="other")).result()


def test_what_is_no_tuple_of_classes_is_refused() -> None:
    """The message says what to write."""
    with pytest.raises(InvalidValue, match=r"park_on=.*use a tuple of classes"):
        outlast.App("memory:", park_on=[KeyError])  # type: ignore[arg-type]


# -- corrected code continues -----------------------------------------------------------------------


@outlast.workflow(name="trip")
async def broken(kind: str = "") -> list[str]:
    booked: list[str] = await STORIES[kind](True)
    return booked


@outlast.workflow(name="trip")
async def corrected(kind: str = "") -> list[str]:
    """The hash of its code differs."""
    booked: list[str] = await STORIES[kind](False)
    return booked


def check(is_broken: bool) -> None:
    if is_broken:
        EMPTY["the bug"]


async def at_once(is_broken: bool) -> list[str]:
    check(is_broken)
    return [await book("a")]


async def in_sequence(is_broken: bool) -> list[str]:
    first = await book("a")
    check(is_broken)
    return [first, await book("b")]


async def beside_a_step(is_broken: bool) -> list[str]:
    async def breaks_soon() -> str:
        first = await book("a", 1)
        check(is_broken)
        return first

    return list(await asyncio.gather(breaks_soon(), book("b", 60), pay("c", 30)))


async def in_a_group(is_broken: bool) -> list[str]:
    """The group cancels its other tasks at once: that is not recorded."""

    async def breaks_soon() -> str:
        first = await book("a", 1)
        check(is_broken)
        return first

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(breaks_soon()), group.create_task(pay("b", 60))]
    return [task.result() for task in tasks]


@outlast.step(retry=outlast.Retry(attempts=2, delay=1, jitter=0))
async def book_at_the_second_attempt(what: str) -> str:
    await takes(10)
    if outlast.step_info().attempt == 1:
        raise ConnectionError("cut off")
    log.append(f"book {what}")
    return what


async def in_a_group_with_a_retry(is_broken: bool) -> list[str]:
    """The step of the cancelled task fails while the run is about to be parked, and is tried again later."""

    async def breaks_soon() -> str:
        first = await book("a", 1)
        check(is_broken)
        return first

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(breaks_soon()),
            group.create_task(book_at_the_second_attempt("b")),
        ]
    return [task.result() for task in tasks]


async def beside_a_step_that_starts(is_broken: bool) -> list[str]:
    """Two deliveries in one turn: the first requests a step, which has not started when the second breaks."""

    async def breaks_soon() -> str:
        first = await book("a", 1)
        check(is_broken)
        return first

    async def goes_on() -> str:
        return await pay(await book("b", 1))

    return list(await asyncio.gather(goes_on(), breaks_soon()))


async def beside_a_queued_step(is_broken: bool) -> list[str]:
    async def breaks_soon() -> str:
        first = await book("a", 1)
        check(is_broken)
        return first

    return list(await asyncio.gather(breaks_soon(), book_elsewhere("b")))


async def beside_a_map(is_broken: bool) -> list[str]:
    async def breaks_soon() -> str:
        first = await book("a", 1)
        check(is_broken)
        return first

    async def maps() -> str:
        return "".join(await outlast.map(book_slowly, ["x", "y", "z"], concurrency=2))

    return list(await asyncio.gather(breaks_soon(), maps()))


@outlast.step
async def book_slowly(what: str) -> str:
    log.append(f"book {what}")
    await takes(10)
    return what


async def beside_a_timer(is_broken: bool) -> list[str]:
    async def breaks_soon() -> str:
        first = await book("a", 1)
        check(is_broken)
        return first

    async def waits() -> str:
        await outlast.sleep(5)
        return await book("b")

    return list(await asyncio.gather(breaks_soon(), waits()))


async def in_a_scope(is_broken: bool) -> list[str]:
    async def body() -> str:
        first = await book("a")
        check(is_broken)
        return first

    return [await outlast.scope(body)]


async def in_a_loop(is_broken: bool) -> list[str]:
    async def body(done: list[str]) -> Any:
        done = [*done, await book(f"{len(done)}")]
        if len(done) == 2:
            check(is_broken)
        return outlast.Stop(done) if len(done) == 3 else done

    result: list[str] = await outlast.loop(body, [])
    return result


async def after_a_signal(is_broken: bool) -> list[str]:
    first = await outlast.wait_for_signal("go", str)
    check(is_broken)
    return [first, await outlast.wait_for_signal("go", str)]


STORIES: dict[str, Callable[[bool], Any]] = {
    "at once": at_once,
    "in sequence": in_sequence,
    "beside a step": beside_a_step,
    "in a group": in_a_group,
    "in a group with a retry": in_a_group_with_a_retry,
    "beside a step that starts": beside_a_step_that_starts,
    "beside a queued step": beside_a_queued_step,
    "beside a map": beside_a_map,
    "beside a timer": beside_a_timer,
    "in a scope": in_a_scope,
    "in a loop": in_a_loop,
}


@pytest.mark.proves("I20", "I24", "I14")
@pytest.mark.parametrize("options", [{}, {"residency": HARSH}], ids=["calm", "snapshots"])
@pytest.mark.parametrize("kind", STORIES)
async def test_corrected_code_continues_and_no_step_is_executed_twice(
    store: Store, clock: VirtualClock, kind: str, options: dict[str, Any]
) -> None:
    """Steps that ran beside the bug have ended, and the corrected code gets their results."""
    async with app(broken, store=store, clock=clock, steps=[book_elsewhere], **options) as testing:
        await testing.start(broken(kind), id="r")
        await is_parked(testing)
        done = [*log]
        await testing.get("r").resume()
        await is_parked(testing)
        assert log == done
    async with app(
        corrected, store=store, clock=clock, steps=[book_elsewhere], **options
    ) as testing:
        booked = await testing.get("r").result()
        replay(corrected, await testing.get("r").history(), uid=(await store.get("r")).uid)
    assert len(log) == len(set(log)), log
    assert not [line for line in log if line.startswith("unbook")]
    assert {word for one in booked for word in one} == {line.split()[1] for line in log}
    assert (await store.get("r")).error is None


@pytest.mark.proves("I20", "I13")
@pytest.mark.parametrize("kind", STORIES)
async def test_a_cancel_of_a_parked_run_undoes_what_was_done(
    store: Store, clock: VirtualClock, kind: str
) -> None:
    """The same code, which has the bug, closes the run and compensates its steps."""
    async with app(broken, store=store, clock=clock, steps=[book_elsewhere]) as testing:
        await testing.start(broken(kind), id="r")
        await is_parked(testing)
        await testing.get("r").cancel("enough")
        with pytest.raises(RunCancelled, match="enough"):
            await testing.get("r").result()
        history = await testing.get("r").history()
        replay(broken, history, uid=(await store.get("r")).uid)
    undone = {line.removeprefix("unbook ") for line in log if line.startswith("unbook ")}
    assert undone == {line.removeprefix("book ") for line in log if line.startswith("book ")} - {
        *("xyz" if kind == "beside a map" else ""),
        *("b" if kind in ("beside a queued step", "in a group with a retry") else ""),
    }


async def test_a_cancel_while_a_step_beside_the_bug_runs_undoes_it_too(
    store: Store, clock: VirtualClock
) -> None:
    """The run is not parked yet: its running step ends, and then it is closed."""
    async with app(broken, store=store, clock=clock) as testing:
        await testing.start(broken("beside a step"), id="r")
        await clock.sleep(10)
        assert (await testing.get("r").status()).status is Status.RUNNING
        await testing.get("r").cancel()
        with pytest.raises(RunCancelled):
            await testing.get("r").result()
    assert sorted(log) == ["book a", "book b", "pay c", "unbook a", "unbook b"]


@pytest.mark.proves("I24", "I11")
async def test_messages_wait_for_corrected_code(store: Store, clock: VirtualClock) -> None:
    """A signal to a parked run is tried at once and stays in its inbox; the one that led to the bug is recorded."""
    STORIES["after a signal"] = after_a_signal
    async with app(broken, store=store, clock=clock) as testing:
        run = await testing.start(broken("after a signal"), id="r")
        await run.signal("go", "first")
        await is_parked(testing)
        await run.signal("go", "second")
        await clock.sleep(1)
        await is_parked(testing)
    async with app(corrected, store=store, clock=clock) as testing:
        assert await testing.get("r").result() == ["first", "second"]


@pytest.mark.proves("I24")
async def test_a_worker_that_is_stopped_meanwhile_loses_no_step(
    store: Store, clock: VirtualClock
) -> None:
    """Steps beside the bug are stopped and tried again; an at_most_once step that never started is not lost."""
    async with app(broken, store=store, clock=clock, drain=0) as testing:
        await testing.start(broken("beside a step"), id="r")
        await clock.sleep(40)
    async with app(corrected, store=store, clock=clock) as testing:
        assert await testing.get("r").result() == ["a", "b", "c"]
    assert sorted(log) == ["book a", "book b", "book b", "pay c"]


@pytest.mark.proves("I24")
async def test_a_bug_in_one_deploy_leaves_the_run_to_a_worker_with_other_code() -> None:
    """A rolling deploy with a bug parks no run that the other version can continue."""
    store = MemoryStore()
    watch = Watch(store)
    async with (
        store,
        outlast.App(store, workflows=[broken], name="new") as new,
        outlast.App(store, workflows=[corrected], name="old") as old,
    ):
        await watch.listed(2)
        await new.start(broken("in sequence"), id="r")
        assert await old.get("r").result(timeout=PATIENCE) == ["a", "b"]
    assert log == ["book a", "book b"]


# -- children and controls --------------------------------------------------------------------------


@outlast.workflow(name="parent")
async def parent() -> list[str]:
    try:
        return ["child", *await broken("in sequence")]
    except ChildFailed as failed:
        return [failed.error]


@pytest.mark.proves("I24")
async def test_a_parent_waits_for_a_parked_child(store: Store, clock: VirtualClock) -> None:
    """It is neither failed nor parked, and goes on when corrected code continues the child."""
    async with app(parent, broken, store=store, clock=clock) as testing:
        run = await testing.start(parent(), id="p")
        await is_parked(testing, "p~child.trip")
        assert (await run.status()).status is Status.WAITING
    async with app(parent, corrected, store=store, clock=clock) as testing:
        assert await testing.get("p").result() == ["child", "a", "b"]


@pytest.mark.parametrize("what", ["terminate", "delete", "fork", "retry"])
async def test_a_parked_run_is_ended_deleted_forked_or_refused_a_retry(
    store: Store, clock: VirtualClock, what: str
) -> None:
    """Each as for any open run: a retry needs one that has failed, and a fork begins at the recorded past."""
    async with app(broken, store=store, clock=clock) as testing:
        run = await testing.start(broken("in sequence"), id="r")
        await is_parked(testing)
        match what:
            case "terminate":
                await run.terminate("enough")
                assert (await run.status()).status is Status.CANCELLED
            case "delete":
                await run.delete(force=True)
                assert await store.find_one("r") is None
            case "fork":
                fork = await run.fork("book")
                await is_parked(testing, fork.id)
            case "retry":
                with pytest.raises(outlast.errors.OutlastError, match="r"):
                    await run.retry()
                assert (await store.get("r")).wait_kind == BUG
    assert "unbook a" not in log


@outlast.workflow(name="continues")
async def continues_broken(life: int) -> int:
    await book(f"{life}")
    if life == 2:
        EMPTY["the bug"]
    return life if life == 3 else await outlast.continue_as_new(continues_broken(life + 1))


@outlast.workflow(name="continues")
async def continues_corrected(life: int) -> int:
    await book(f"{life}")
    return life if life == 3 else await outlast.continue_as_new(continues_corrected(life + 1))


async def test_a_later_life_is_parked_and_continues(store: Store, clock: VirtualClock) -> None:
    """Only the life with the bug waits; nothing of the lives before is done again."""
    async with app(continues_broken, store=store, clock=clock) as testing:
        await testing.start(continues_broken(1), id="r")
        await is_parked(testing)
    async with app(continues_corrected, store=store, clock=clock) as testing:
        assert await testing.get("r").result() == 3
    assert log == ["book 1", "book 2", "book 3"]


async def test_a_bug_while_a_run_is_cancelled_does_not_park_it() -> None:
    """A `finally` with a bug would keep the run from being compensated."""

    @outlast.workflow
    async def cleans_up() -> None:
        await book("a")
        try:
            await outlast.sleep(1000)
        finally:
            EMPTY["the bug"]

    async with app(cleans_up) as testing:
        run = await testing.start(cleans_up(), id="r")
        while (await run.status()).status is not Status.WAITING:
            await testing.clock.sleep(1)
        await run.cancel()
        with pytest.raises(RunFailed):
            await run.result()
    assert log == ["book a", "unbook a"]


async def test_code_with_a_bug_before_the_end_of_history_is_a_mismatch(
    store: Store, clock: VirtualClock
) -> None:
    """History goes on, and the code does not: the mismatch names the error."""

    @outlast.workflow(name="trip")
    async def sleeps(kind: str = "") -> str:
        await book("a")
        await outlast.sleep(100)
        return await book("b")

    async with app(sleeps, store=store, clock=clock) as testing:
        await testing.start(sleeps("in sequence"), id="r")
        await clock.sleep(10)
    async with app(broken, store=store, clock=clock) as testing:
        await clock.sleep(100)
        with pytest.raises(RunParked, match=r"(?s)it ended with KeyError: 'the bug' at test_bugs"):
            await testing.get("r").result()
        assert (await store.get("r")).wait_kind == MISMATCH
    async with app(sleeps, store=store, clock=clock) as testing:
        assert await testing.get("r").result() == "b"


async def test_a_run_that_failed_by_a_bug_once_replays_where_bugs_park(
    store: Store, clock: VirtualClock
) -> None:
    """What one app has recorded with `park_on=()`, another completes: its compensation is in history."""

    @outlast.step
    async def undo_slowly(what: str) -> None:
        log.append("undo")
        await takes(60)

    @outlast.step
    async def charge() -> str:
        return "c"

    charge.compensate(undo_slowly.definition.function)

    @outlast.workflow
    async def order() -> None:
        await charge()
        EMPTY["the bug"]

    async with app(order, store=store, clock=clock, park_on=(), drain=0) as testing:
        await testing.start(order(), id="r")
        await clock.sleep(10)
    async with app(order, store=store, clock=clock) as testing:
        with pytest.raises(RunFailed, match="KeyError"):
            await testing.get("r").result()
    assert log == ["undo", "undo"]
