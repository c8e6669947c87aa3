"""Runs that wait in queues: limits, turns, delays, and what happens to them meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.errors import (
    InvalidId,
    InvalidValue,
    RunCancelled,
    RunExists,
    RunFailed,
    UsageError,
    WorkflowMisuse,
)
from outlast.model.run import Status
from outlast.testing import VirtualApp, app
from outlast.testing import sleep as takes
from outlast.testing.virtual_clock import START

begun: list[str] = []
under_way: list[str] = []
most: dict[str, int] = {}
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    begun.clear()
    under_way.clear()
    most.clear()
    broken.clear()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'runs.db'}"


@contextmanager
def at_work(what: str, key: str) -> Iterator[None]:
    """What is under way now, and how much of it there was at once."""
    begun.append(what)
    under_way.append(key)
    for name, count in (("", len(under_way)), (key, under_way.count(key))):
        most[name] = max(most.get(name, 0), count)
    try:
        yield
    finally:
        under_way.remove(key)


@outlast.step
async def bill(customer: str, seconds: float) -> str:
    with at_work(customer, customer[0]):
        await takes(seconds)
    if customer in broken:
        raise ConnectionError("no bank")
    return f"billed {customer}"


@outlast.workflow
async def billing(customer: str, seconds: float = 60) -> str:
    return await bill(customer, seconds)


@outlast.workflow
async def waits_for_a_word(customer: str) -> str:
    with_work = await bill(customer, 1)
    return f"{with_work}: {await outlast.wait_for_signal('word', str)}"


@outlast.workflow
async def bills_all(customers: list[str]) -> list[str]:
    children = [
        asyncio.create_task(
            outlast.child(billing(one), queue=outlast.QueueOptions("bills", key=one[0]))
        )
        for one in customers
    ]
    return list(await asyncio.gather(*children))


@outlast.workflow
async def bills_for_ever(customer: str, left: int) -> str:
    done = await bill(customer, 60)
    if left:
        outlast.continue_as_new(bills_for_ever(customer, left - 1))
    return done


WORKFLOWS = (billing, waits_for_a_word, bills_all, bills_for_ever)


def policy(**rules: Any) -> outlast.QueuePolicy:
    return outlast.QueuePolicy(queue="bills", **rules)


@pytest.mark.proves("I22")
async def test_no_more_runs_than_allowed(store: str) -> None:
    """Runs of a queue are under way three at once, of one customer one at once; all get done."""
    rules = policy(concurrency=3, key_concurrency=1)
    names = [f"{customer}{number}" for number in range(4) for customer in "abcd"]
    async with app(*WORKFLOWS, store=store, queues=[rules]) as testing:
        runs = [
            await testing.start(
                billing(name), id=name, queue=outlast.QueueOptions("bills", key=name[0])
            )
            for name in names
        ]
        assert [await run.result() for run in runs] == [f"billed {name}" for name in names]
    assert max(most.values()) == most[""] == 3
    assert {most[key] for key in "abcd"} == {1}


@pytest.mark.proves("I22")
async def test_a_run_counts_until_it_ends(store: str) -> None:
    """One that waits for a word, out of memory, keeps its place; its end returns it."""
    async with app(*WORKFLOWS, store=store, queues=[policy(concurrency=1)]) as testing:
        first = await testing.start(waits_for_a_word("a1"), id="first", queue="bills")
        second = await testing.start(billing("b1"), id="second", queue="bills")
        await testing.clock.sleep(86_400)
        assert begun == ["a1"]
        assert (await testing.get("second").status()).wait_kind == "queue"
        await first.signal("word", "go")
        assert await second.result() == "billed b1"


@outlast.step
async def look_up(customer: str) -> str:
    return customer


@outlast.workflow
async def changes_its_mind(customer: str) -> str:
    if customer in broken:
        await look_up(customer)  # as code that was changed under a run
    done = await bill(customer, 1)
    await outlast.wait_for_signal("word", str)
    return await bill(f"{customer}!", 60) + done


async def until_it_waits_for(testing: VirtualApp, run_id: str, kind: str) -> None:
    """The database may work while the virtual clock leaps: time alone says nothing."""
    for _ in range(200):
        if (await testing.get(run_id).status()).wait_kind == kind:
            return
        await testing.clock.sleep(1)
    raise AssertionError(f"it waits for {(await testing.get(run_id).status()).wait_kind}")


@pytest.mark.proves("I22")
async def test_a_run_that_is_parked_returns_its_place(store: str) -> None:
    """One that no code can go on with lets the next begin. When it goes on it waits for its turn again,
    and never more are under way than allowed; parked twice, it returns its place twice."""
    workflows, rules = (*WORKFLOWS, changes_its_mind), policy(concurrency=1)
    async with app(*workflows, store=store, queues=[rules]) as testing:
        first = await testing.start(changes_its_mind("a1"), id="first", queue="bills")
        await testing.clock.sleep(90)
        broken.add("a1")
        await first.signal("word", "go")
        for number in (1, 2):
            await until_it_waits_for(testing, "first", "mismatch")
            other = await testing.start(billing(f"b{number}", 900), id=f"b{number}", queue="bills")
            await testing.clock.sleep(300)
            assert begun[-1] == f"b{number}"
            if number == 2:
                broken.clear()
            await testing.get("first").resume()
            await until_it_waits_for(testing, "first", "queue")
            assert await other.result() == f"billed b{number}"
        assert await first.result() == "billed a1!billed a1"
    assert most[""] == 1


@pytest.mark.proves("I22")
@pytest.mark.parametrize("end", ["fails", "cancel", "terminate", "delete"])
async def test_every_end_returns_the_place(store: str, end: str) -> None:
    """However a run ends, the next one begins."""
    if end == "fails":
        broken.add("a1")
    async with app(*WORKFLOWS, store=store, queues=[policy(concurrency=1)]) as testing:
        workflow = billing if end == "fails" else waits_for_a_word
        first = await testing.start(workflow("a1"), id="first", queue="bills")
        second = await testing.start(billing("b1"), id="second", queue="bills")
        await testing.clock.sleep(90)
        if end != "fails":
            await getattr(testing.get("first"), end)(**({"force": True} if end == "delete" else {}))
        assert await second.result() == "billed b1"
        if end == "fails":
            with pytest.raises(RunFailed):
                await first.result()


@pytest.mark.proves("I22")
async def test_a_retry_takes_its_turn_again(store: str) -> None:
    """A failed run that is retried waits like any other, with its old key."""
    broken.add("a1")
    async with app(*WORKFLOWS, store=store, queues=[policy(key_concurrency=1)]) as testing:
        place = outlast.QueueOptions("bills", key="a")
        await testing.start(billing("a1"), id="first", queue=place)
        await testing.clock.sleep(90)
        broken.clear()
        await testing.start(billing("a2"), id="second", queue=place)
        await testing.clock.sleep(10)
        again = await testing.get("first").retry()
        assert await again.result() == "billed a1"
        assert begun == ["a1", "a2", "a1"]
    assert most["a"] == 1


@pytest.mark.proves("I22")
async def test_a_new_life_takes_its_turn_again(store: str) -> None:
    """A run that continues as new lets others in between."""
    async with app(*WORKFLOWS, store=store, queues=[policy(concurrency=1)]) as testing:
        endless = await testing.start(bills_for_ever("a1", 2), id="endless", queue="bills")
        other = await testing.start(billing("b1"), id="other", queue="bills")
        assert await other.result() == "billed b1"
        assert await endless.result() == "billed a1"
    assert begun == ["a1", "b1", "a1", "a1"]
    assert most[""] == 1


@pytest.mark.proves("I22", "I21")
async def test_children_wait_too(store: str) -> None:
    """Children that are started in a queue are under way as many as its rules allow."""
    async with app(*WORKFLOWS, store=store, queues=[policy(concurrency=2)]) as testing:
        run = await testing.start(bills_all(["a1", "a2", "b1", "b2", "b3"]))
        assert await run.result() == [f"billed {one}" for one in ("a1", "a2", "b1", "b2", "b3")]
    assert most[""] == 2


async def test_a_run_begins_at_its_time(store: str) -> None:
    """Not before; what is sent to it until then waits for it."""
    async with app(*WORKFLOWS, store=store, queues=["bills"]) as testing:
        runs = []
        for place in (
            outlast.QueueOptions(delay=timedelta(hours=5)),
            outlast.QueueOptions("bills", at=START + timedelta(days=2)),
        ):
            run = await testing.start(waits_for_a_word("a1"), queue=place)
            await run.signal("word", "early")
            record = await testing.get(run.id).status()
            assert (record.status, record.wait_kind) == (Status.PENDING, "queue")
            runs.append(run)
        await testing.clock.sleep(4 * 3600)
        assert begun == []
        await testing.clock.sleep(2 * 3600)
        assert begun == ["a1"]
        assert await runs[1].result() == "billed a1: early"
        assert testing.clock.now() >= START + timedelta(days=2)


async def test_a_queue_that_nobody_serves(store: str) -> None:
    """Its runs wait, until somebody does."""
    async with app(*WORKFLOWS, store=store) as testing:
        for name in ("a1", "a2"):
            await testing.start(billing(name), id=name, queue="bills")
        await testing.clock.sleep(86_400)
        assert begun == []
        [stats] = await testing.client.queues.stats()
        assert (stats.queue, stats.ready, stats.in_flight) == ("bills", 2, 0)
        await testing.get("a1").cancel("nobody came")
        with pytest.raises(RunCancelled, match="nobody came"):
            await testing.get("a1").result()
        async with VirtualApp(
            testing.store, testing.clock, workflows=WORKFLOWS, queues=["bills"]
        ) as other:
            assert await other.get("a2").result() == "billed a2"


async def test_signals_do_not_push_in(store: str) -> None:
    """A signal, a pause and an unpause before its turn change nothing about when it begins."""
    async with app(*WORKFLOWS, store=store, queues=[policy(paused=True)]) as testing:
        run = await testing.start(waits_for_a_word("a1"), id="a1", queue="bills")
        await run.signal("word", "hello")
        await testing.get("a1").pause()
        await testing.clock.sleep(60)
        await testing.get("a1").resume()
        await testing.clock.sleep(60)
        assert begun == []
        await testing.client.queues.resume("bills", by="ann")
        assert await run.result() == "billed a1: hello"
        assert [change.by for change in await testing.client.queues.changes("bills")] == [
            "ann",
            "code",
        ]


async def test_the_same_start_is_the_same_run(store: str) -> None:
    """The id is the idempotency key in a queue too."""
    async with app(*WORKFLOWS, store=store, queues=["bills"]) as testing:
        await testing.start(billing("a1"), id="a", queue="bills")
        again = await testing.start(billing("a1"), id="a", queue="bills")
        assert await again.result() == "billed a1"
        assert begun == ["a1"]
        with pytest.raises(RunExists):
            await testing.start(billing("a2"), id="a", queue="bills")


async def test_many_at_once(store: str) -> None:
    """A batch begins as single starts would, and can be repeated."""
    names = [f"c{number}" for number in range(1200)]
    async with app(*WORKFLOWS, store=store, queues=[policy(paused=True)]) as testing:

        def place(call: outlast.Call[str]) -> outlast.QueueOptions:
            return outlast.QueueOptions("bills", key=call.args[0][-1])

        calls = {name: billing(name) for name in names}
        first = await testing.start_many(calls, queue=place)
        again = await testing.start_many(calls, queue=place)
        assert [run.id for run in first] == [run.id for run in again] == names
        [stats] = await testing.client.queues.stats("bills")
        assert (stats.ready, len(stats.keys), stats.blocked_by) == (1200, 10, "paused")


WRONG: dict[str, tuple[type[UsageError], Any]] = {
    "no name": (InvalidId, ""),
    "a slash": (InvalidValue, "bills/now"),
    "a negative delay": (InvalidValue, outlast.QueueOptions("bills", delay=-1)),
    "delay and time": (InvalidValue, outlast.QueueOptions("bills", delay=1, at=START)),
    "no zone": (InvalidValue, outlast.QueueOptions("bills", at=START.replace(tzinfo=None))),
    "a long key": (InvalidValue, outlast.QueueOptions("bills", key="k" * 10_000_000)),
    "a priority that is no number": (InvalidValue, outlast.QueueOptions("bills", priority="x")),  # type: ignore[arg-type]
    "half a priority": (InvalidValue, outlast.QueueOptions("bills", priority=1.5)),  # type: ignore[arg-type]
    "a delay in words": (InvalidValue, outlast.QueueOptions("bills", delay="5")),  # type: ignore[arg-type]
    "a time in words": (InvalidValue, outlast.QueueOptions("bills", at="noon")),  # type: ignore[arg-type]
    "a number": (InvalidValue, 3),
}


@pytest.mark.parametrize(("error", "place"), WRONG.values(), ids=WRONG)
async def test_impossible_places(error: type[UsageError], place: Any) -> None:
    """They are refused where they are written, and nothing has begun."""
    async with app(*WORKFLOWS, queues=["bills"]) as testing:
        with pytest.raises(error):
            await testing.start(billing("a1"), id="a1", queue=place)
        assert await testing.store.find_one("a1") is None


def test_rules_that_no_queue_could_keep() -> None:
    """An app with them is refused when it is made."""
    with pytest.raises(InvalidValue, match="concurrency=0"):
        outlast.App("memory:", queues=[policy(concurrency=0)])
    with pytest.raises(WorkflowMisuse, match="no queue"):
        outlast.step(key="customer")(billing.definition.function)
    with pytest.raises(WorkflowMisuse, match="no parameter 'client'"):
        outlast.step(queue="gpu", key="client")(billing.definition.function)


@pytest.mark.proves("I22")
async def test_one_process_takes_on_so_much(store: str) -> None:
    """A process drives as many runs at once, and does as many queued steps, as it is told to."""
    async with app(*WORKFLOWS, store=store, queues=["bills"], concurrency=2) as testing:
        runs = [await testing.start(billing(f"a{n}"), queue="bills") for n in range(6)]
        assert [await run.result() for run in runs] == [f"billed a{n}" for n in range(6)]
    assert most[""] == 2
    with pytest.raises(InvalidValue, match="concurrency=0"):
        outlast.App("memory:", concurrency=0)


# -- steps ----------------------------------------------------------------------------------------


@outlast.step(queue="gpu", key="customer", priority=lambda customer, urgent: -int(urgent))
async def render(customer: str, urgent: bool = False) -> str:
    with at_work(f"{customer}{'!' * urgent}", customer):
        await takes(60)
    return customer


@outlast.workflow
async def renders(customers: list[str]) -> list[str]:
    return await asyncio.gather(*[render(one[0], one.endswith("!")) for one in customers])


@pytest.mark.proves("I22")
async def test_steps_of_a_queue_take_turns(store: str) -> None:
    """Steps are limited over all runs, share by key, and the urgent ones of a key go first."""
    rules = outlast.QueuePolicy(queue="gpu", concurrency=2, key_concurrency=1)
    async with app(renders, store=store, steps=[render], queues=[rules]) as testing:
        many = await testing.start(renders(["a", "a", "a", "a!"]))
        await testing.clock.sleep(1)
        few = await testing.start(renders(["b"]))
        assert await few.result() == ["b"]
        assert await many.result() == ["a", "a", "a", "a"]
    assert most == {"": 2, "a": 1, "b": 1}
    assert begun[1] == "b"
    assert begun[:3] in (["a!", "b", "a"], ["a", "b", "a!"])


# -- debounce -------------------------------------------------------------------------------------


async def test_a_debounced_start_waits_for_quiet(store: str) -> None:
    """It begins once, with what was said last, when nobody has said anything for a while."""
    async with app(*WORKFLOWS, store=store) as testing:
        runs = []
        for number in range(5):
            run = await testing.client.debounce(billing(f"a{number}"), key="a", quiet=30)
            runs.append(run.id)
            await testing.clock.sleep(20)
        assert len(set(runs)) == 1
        assert begun == []
        assert await testing.get(runs[0]).result() == "billed a4"
        later = await testing.client.debounce(billing("a9"), key="a", quiet=30)
        assert later.id not in runs
        assert await later.result() == "billed a9"
    assert begun == ["a4", "a9"]


async def test_a_debounce_ends_some_time(store: str) -> None:
    """However often it is asked for, it begins `at_most` so long after the first time."""
    async with app(*WORKFLOWS, store=store) as testing:
        for _ in range(6):
            await testing.client.debounce(billing("a1"), key="a", quiet=30, at_most=70)
            await testing.clock.sleep(20)
        assert begun == ["a1"]
        with pytest.raises(InvalidValue, match="quiet"):
            await testing.client.debounce(billing("a1"), key="a", quiet=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"quiet": float("inf")},
        {"quiet": float("nan")},
        {"quiet": -1},
        {"quiet": "30"},
        {"quiet": None},
        {"quiet": True},
        {"at_most": "70"},
        {"at_most": float("nan")},
        {"at_most": -1},
        {"at_most": 0},
        {"key": ""},
        {"key": 3},
        {"queue": 3},
        {"queue": "a/b"},
    ],
    ids=str,
)
async def test_a_debounce_that_cannot_be(wrong: dict[str, Any]) -> None:
    """It is refused before anything is written."""
    async with app(*WORKFLOWS, store="memory:") as testing:
        with pytest.raises(UsageError):
            await testing.client.debounce(billing("a1"), **{"key": "a", "quiet": 30, **wrong})
        assert [run async for run in testing.client.find()] == []


async def test_a_debounce_keeps_to_its_own(store: str) -> None:
    """Another workflow under the same key, and a run that happens to wait, are left alone; what was
    sent before its turn stays in its inbox."""
    async with app(*WORKFLOWS, store=store, queues=[policy(paused=True)]) as testing:
        await testing.start(billing("b1"), id="billing.a.1", queue="bills")
        first = await testing.client.debounce(waits_for_a_word("a1"), key="a", quiet=30)
        await first.signal("word", "early")
        other = await testing.client.debounce(billing("a2"), key="a", quiet=30)
        again = await testing.client.debounce(waits_for_a_word("a3"), key="a", quiet=30)
        assert again.id == first.id != other.id
        assert await other.result() == "billed a2"
        assert await first.result() == "billed a3: early"
        assert (await testing.get("billing.a.1").status()).wait_kind == "queue"


async def test_new_code_resumes_nothing(store: str) -> None:
    """A queue that somebody has paused stays so, whatever limits the next version brings."""
    async with app(*WORKFLOWS, store=store, queues=[policy(concurrency=1)]) as testing:
        await testing.client.queues.pause("bills", by="ann")
        async with VirtualApp(
            testing.store, testing.clock, workflows=WORKFLOWS, queues=[policy(concurrency=2)]
        ) as newer:
            assert await newer.client.queues.get("bills") == policy(concurrency=2, paused=True)


async def test_many_who_debounce_at_once(store: str) -> None:
    """Whoever is first begins it, the others join, and nothing that was said last is lost."""
    async with app(*WORKFLOWS, store=store) as testing:
        calls = [testing.client.debounce(billing(f"a{n}"), key="a", quiet=30) for n in range(20)]
        runs = {run.id for run in await asyncio.gather(*calls)}
        assert len(runs) == 1
        said = (await testing.get(runs.pop()).status()).input
        await testing.clock.sleep(200)
        assert len(begun) == 1
        assert begun[0] in said.values()
