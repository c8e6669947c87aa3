"""Replay: old histories meet the same code, changed code, and code that is wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

import outlast
from outlast.decorators import Workflow
from outlast.engine.steps.crash_isolation import QUIET_SECONDS
from outlast.errors import RunFailed, StepFailed
from outlast.model import Event, Status
from outlast.model.commit import Outcome
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testing.crashable_process import CrashableProcess
from outlast.testing.scenario_result import EffectLedger
from outlast.testing.virtual_clock import VirtualClock as Clock

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    ran.clear()


@outlast.step
async def do(what: str) -> str:
    ran.append(what)
    return what


@outlast.step
async def other(what: str) -> str:
    ran.append(f"other {what}")
    return what


def versions() -> tuple[MemoryStore, Clock]:
    """A store that outlives the code."""
    clock = VirtualClock()
    return MemoryStore(clock=clock), clock


def told(history: list[Event]) -> list[str]:
    return [f"{event.type} {event.step_name}".strip() for event in history]


@outlast.workflow(name="job")
async def original() -> list[str]:
    first = await do("one")
    await outlast.sleep(hours=1)
    return [first, await do("two")]


@outlast.workflow(name="job")
async def asks_for_less() -> list[str]:
    await outlast.sleep(hours=1)
    return [await do("two")]


@outlast.workflow(name="job")
async def asks_for_more() -> list[str]:
    first = await do("one")
    second = await other("between")
    await outlast.sleep(hours=1)
    return [first, second]


@outlast.workflow(name="job")
async def asks_for_another() -> list[str]:
    first = await other("one")
    await outlast.sleep(hours=1)
    return [first]


@outlast.workflow(name="job")
async def ends_early() -> list[str]:
    return [await do("one")]


@pytest.mark.proves("I14", "C-14")
@pytest.mark.parametrize(
    ("changed", "recorded", "asked"),
    [
        (asks_for_less, "step.started 'do'", "timer.started 'timer'"),
        (asks_for_more, "timer.started 'timer'", "step.started 'other'"),
        (asks_for_another, "step.started 'do'", "step.started 'other'"),
        (ends_early, "timer.started 'timer'", "nothing more"),
    ],
)
async def test_changed_code_parks_the_run_and_a_fix_lets_it_go_on(
    changed: Any, recorded: str, asked: str
) -> None:
    """Both sides are shown, nothing is overwritten, no step runs; with code that fits, the run goes on
    unasked, as if nothing had been."""
    store, clock = versions()
    async with app(original, store=store, clock=clock) as testing:
        await testing.start(original(), id="it")
        await clock.settle()
        before = told(await testing.get("it").history())
    async with app(changed, store=store, clock=clock) as testing:
        await clock.sleep(7200)
        run = await testing.get("it").status()
        assert (run.status, run.wait_kind, run.owner) == (Status.HALTED, "mismatch", None)
        assert recorded in str(run.error)
        assert asked in str(run.error)
        # Where the code stands now, unless it has ended.
        assert (changed is ends_early) != ("test_replay.py:" in str(run.error))
        assert told(await testing.get("it").history()) == before
        assert ran == ["one"]
    async with app(original, store=store, clock=clock) as testing:
        assert await testing.get("it").result() == ["one", "two"]
        run = await testing.get("it").status()
        assert (run.status, run.error) == (Status.COMPLETED, None)
    assert ran == ["one", "two"]


@pytest.mark.proves("I14")
async def test_a_mismatch_does_not_swallow_the_answer_to_a_halt() -> None:
    """Resuming a run with mended code is not an answer to what it asks a person."""

    @outlast.workflow(name="asks")
    async def asks() -> str:
        return await outlast.halt("well?", str)

    @outlast.workflow(name="asks")
    async def wrong() -> str:
        return await do("something else")

    store, clock = versions()
    async with app(asks, store=store, clock=clock) as testing:
        await testing.start(asks(), id="it")
        await clock.settle()
    async with app(wrong, store=store, clock=clock) as testing:
        await testing.get("it").resume("too early")
        await clock.settle()
        assert (await testing.get("it").status()).wait_kind == "mismatch"
    async with app(asks, store=store, clock=clock) as testing:
        handle = testing.get("it")
        await handle.resume()
        # The answer that came while the code was wrong was kept.
        assert await handle.result() == "too early"


@pytest.mark.proves("I14", "C-14")
async def test_patched_sends_old_runs_the_old_way_and_new_ones_the_new() -> None:
    """A run that had passed the point keeps to what it did; one that had not takes the new way."""

    @outlast.workflow(name="job")
    async def patched() -> list[str]:
        first = await (other("one") if outlast.patched("better") else do("one"))
        await outlast.sleep(hours=1)
        second = await (other("two") if outlast.patched("better too") else do("two"))
        await outlast.sleep(hours=1)
        return [first, second]

    store, clock = versions()
    async with app(original, store=store, clock=clock) as testing:
        await testing.start(original(), id="old")
        await clock.settle()
    async with app(patched, store=store, clock=clock) as testing:
        new = await testing.start(patched(), id="new")
        await new.result()
        await testing.get("old").result()
        assert sorted(ran) == ["one", "other one", "other two", "other two"]
        old = told(await testing.get("old").history())
    assert "branch.evaluated patch:better" not in old
    assert "branch.evaluated patch:better too" in old


@pytest.mark.proves("C-14")
async def test_the_definition_is_recorded_without_its_tuning() -> None:
    """Name, version and a hash of what the code says; retries and layout are no part of it."""

    def body() -> Any:
        @outlast.workflow(version=3)
        async def job(number: int) -> int:
            """Anything."""
            return number + 1

        return job

    def same_body() -> Any:
        @outlast.workflow(version=3)
        # A comment, and another layout.
        async def job(number: int) -> int:
            """Anything."""
            return (
                number + 1
            )  # fmt: skip

        return job

    first, second = body(), same_body()
    assert first.definition.hash == second.definition.hash
    async with app(first) as testing:
        await testing.start(first(1), id="it")
        run = await testing.store.get("it")
    assert (run.workflow, run.version, run.definition) == ("job", 3, first.definition.hash)


@pytest.mark.proves("I14", "S28")
async def test_a_result_that_no_longer_fits_parks_the_run() -> None:
    """A step whose type has changed since: an operator sees what and where."""

    @outlast.step(name="do")
    async def counts(what: str) -> int:
        return len(what)

    @outlast.workflow(name="job")
    async def retyped() -> list[str]:
        number = await counts("one")
        await outlast.sleep(hours=1)
        return [str(number)]

    store, clock = versions()
    async with app(original, store=store, clock=clock) as testing:
        await testing.start(original(), id="it")
        await clock.settle()
    async with app(retyped, store=store, clock=clock) as testing:
        await clock.sleep(7200)
        run = await testing.get("it").status()
    assert run.status is Status.HALTED
    assert "result of" in str(run.error)


@pytest.mark.proves("I21", "I14")
async def test_a_child_whose_result_does_not_fit_parks_its_parent() -> None:
    """Live, too: nothing of what came is consumed, and with mended code it is taken."""

    @outlast.workflow(name="child")
    async def says() -> str:
        return "three"

    @outlast.workflow(name="child")
    async def counts() -> int:
        return 3

    @outlast.workflow(name="parent")
    async def wants_a_number() -> str:
        return str(await counts())

    @outlast.workflow(name="parent")
    async def wants_a_text() -> str:
        return await says()

    store, clock = versions()
    async with app(wants_a_number, says, store=store, clock=clock) as testing:
        await testing.start(wants_a_number(), id="it")
        await clock.settle()
        run = await testing.get("it").status()
        assert run.status is Status.HALTED
        assert "expected `int`" in str(run.error)
    async with app(wants_a_text, says, store=store, clock=clock) as testing:
        handle = testing.get("it")
        await handle.resume()
        assert await handle.result() == "three"


# -- eviction -------------------------------------------------------------------------------------


@pytest.mark.proves("I14")
async def test_nothing_acts_when_code_is_thrown_out() -> None:
    """Whatever code does with the exception it sees, its outlast calls raise and do nothing."""

    @outlast.workflow
    async def stubborn() -> str:
        for _ in range(3):
            try:
                await outlast.sleep(hours=1)
                return await do("woken")
            except BaseException:  # noqa: BLE001 - this is the point
                await do("caught")
        return "never"

    @outlast.workflow
    async def waits_once_more() -> str:
        try:
            await outlast.sleep(hours=1)
        finally:
            await asyncio.sleep(0)
            await do("finally")
        return "slept"

    async with app(stubborn, waits_once_more) as testing:
        first = await testing.start(stubborn())
        second = await testing.start(waits_once_more())
        await testing.clock.settle()
        assert ran == []
        assert await first.result() == "woken"
        assert await second.result() == "slept"
    assert sorted(ran) == ["finally", "woken"]


@pytest.mark.proves("I14")
async def test_code_inside_a_scope_is_thrown_out_without_a_trace() -> None:
    """In a scope and a loop, in branches: no error other than the eviction is seen by the code."""
    seen: list[BaseException] = []

    async def part(number: int) -> int | outlast.Stop[int]:
        try:
            await outlast.sleep(hours=1)
        except Exception as error:  # noqa: BLE001 - there should be none
            seen.append(error)
        return outlast.Stop(number)

    async def inside() -> int:
        return await outlast.loop(part, 1)

    @outlast.workflow
    async def nested() -> list[int]:
        return list(await asyncio.gather(outlast.scope(inside), outlast.scope(inside)))

    async with app(nested) as testing:
        run = await testing.start(nested())
        assert await run.result() == [1, 1]
    assert seen == []


# -- time -----------------------------------------------------------------------------------------


@pytest.mark.proves("I14")
async def test_time_beside_a_scope_is_the_same_again() -> None:
    """What happens inside a scope or a loop, and is skipped by a replay, does not move the clock
    of those beside it."""
    times: dict[str, list[datetime]] = {"quick": [], "loop": []}

    async def tick(number: int) -> int | outlast.Stop[int]:
        await outlast.sleep(minutes=1)
        return outlast.Stop(number) if number == 30 else number + 1

    async def part() -> int:
        return await outlast.loop(tick, 1)

    @outlast.workflow
    async def beside() -> None:
        event = asyncio.Event()

        async def wakes_up() -> None:
            await outlast.sleep(minutes=45)
            event.set()

        async def looks_at_the_clock(name: str) -> None:
            await outlast.sleep(minutes=10.5)
            times[name].append(outlast.now())
            await event.wait()
            times[name].append(outlast.now())

        async with asyncio.TaskGroup() as group:
            group.create_task(outlast.scope(part))
            group.create_task(looks_at_the_clock("quick"))
            group.create_task(wakes_up())
        await outlast.sleep(hours=1)

    async with app(beside) as testing:
        await (await testing.start(beside())).result()
    assert len(times["quick"]) > 10
    assert len(set(times["quick"])) == 2


# -- interruptions --------------------------------------------------------------------------------


async def dies_with(workflow: Workflow[..., Any], store: MemoryStore, clock: Clock) -> None:
    """A process that runs the workflow for a second and is killed."""
    process = CrashableProcess(store, clock, EffectLedger())
    app = outlast.App(process.store, workflows=[workflow])

    async def live() -> None:
        await app.open()
        await app.start(workflow(), id="it")

    process.attach(app, asyncio.create_task(live()))
    while (run := await store.find_one("it")) is None or run.owner is None:
        await clock.sleep(1)
    await clock.sleep(100)  # longer than a suspect waits for its turn
    process.die()
    await process.discard()


@pytest.mark.proves("I10", "I24")
async def test_two_delicate_steps_that_were_cut_off_together() -> None:
    """One fails, the code gives up the other: nobody asks for its outcome again."""

    @outlast.step(at_most_once=True)
    async def delicate(name: str) -> str:
        await takes(3600)
        return name

    @outlast.workflow
    async def pair() -> str:
        count = 0
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(delicate("a"))
                group.create_task(delicate("b"))
        except* StepFailed as failed:
            count = len(failed.exceptions)
        return await do(f"{count} failed")

    store, clock = versions()
    async with app(pair, store=store, clock=clock) as testing:
        await testing.start(pair(), id="it")
        await clock.sleep(1)
    async with app(pair, store=store, clock=clock) as testing:
        assert await testing.get("it").result() == "1 failed"


@pytest.mark.proves("I10")
async def test_a_step_that_kills_its_process_ends_in_failure() -> None:
    """Attempts are counted before they run: after a few of them the step is taken for the cause."""

    @outlast.step
    async def deadly() -> None:
        ran.append("deadly")
        await takes(3600)

    @outlast.workflow
    async def dies() -> str:
        try:
            await deadly()
        except StepFailed as failure:
            return f"{failure.error_type} after {failure.attempts}"
        return "never"

    store, clock = versions()
    for _ in range(3):
        await dies_with(dies, store, clock)
    async with app(dies, store=store, clock=clock) as testing:
        assert await testing.get("it").result() == "Interrupted after 3"
    assert ran == ["deadly"] * 3


class Slow(MemoryStore):
    """A store whose commits take `seconds`."""

    seconds = 0.0

    async def commit(self, commits: Any, **options: Any) -> list[Outcome]:
        await self.clock.sleep(self.seconds)
        return await super().commit(commits, **options)


@pytest.mark.proves("I10", "I24")
async def test_a_suspect_whose_turn_comes_while_the_store_is_slow_begins() -> None:
    """Its quiet time is over when its run comes to look: it has its turn all the same."""
    seconds = 3600

    @outlast.step
    async def part(name: str) -> str:
        await takes(seconds)
        return name

    @outlast.workflow
    async def both() -> str:
        return " and ".join(await asyncio.gather(part("a"), part("b")))

    clock = VirtualClock()
    store = Slow(clock=clock)
    for _ in range(2):
        await dies_with(both, store, clock)
    seconds = 5
    async with app(both, store=store, clock=clock) as testing:
        store.seconds = 2.5 * QUIET_SECONDS
        assert await testing.get("it").result(timeout=3600) == "a and b"


@pytest.mark.proves("I10")
async def test_a_map_that_kills_its_process_ends_in_failure() -> None:
    """The same for a map whose items never get anywhere."""

    @outlast.step
    async def deadly(number: int) -> None:
        await takes(3600)

    @outlast.workflow
    async def dies() -> list[None]:
        return await outlast.map(deadly, [1, 2])

    store, clock = versions()
    for _ in range(3):
        await dies_with(dies, store, clock)
    async with app(dies, store=store, clock=clock) as testing:
        with pytest.raises(RunFailed, match="died again and again"):
            await testing.get("it").result()


@pytest.mark.proves("I24")
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("plain", [False, True])
async def test_code_that_wants_to_exit_fails_its_run_alone(
    plain: bool, kind: type[BaseException]
) -> None:
    """`sys.exit` in a workflow or a step is an error of that run, not the end of the process. So is what
    Ctrl-C raises."""

    @outlast.step
    def exits() -> None:
        raise SystemExit(3)

    if plain:

        @outlast.workflow(name="leaves")
        def leaves() -> None:
            raise kind(3)
    else:

        @outlast.workflow(name="leaves")
        async def leaves() -> None:
            await outlast.sleep(1)
            raise kind(3)

    @outlast.workflow
    async def calls() -> str:
        try:
            await exits()
        except StepFailed as failure:
            return failure.error
        return "never"

    async with app(leaves, calls) as testing:
        run = await testing.start(leaves(), id="it")
        said = await (await testing.start(calls())).result()
        assert (
            said
            == "step 'exits' tried to end its process (SystemExit: 3): raise an Exception instead"
        )
        await testing.clock.sleep(5)
        assert (await run.status()).status is Status.FAILED
        assert f"{kind.__name__}: 3" in str((await testing.get("it").status()).error)


@pytest.mark.proves("I10", "I30")
async def test_an_app_that_is_closed_hands_back_what_is_under_way() -> None:
    """Steps and maps are cut off, on record, and go on elsewhere at once; nothing counts."""

    @outlast.step
    async def slow(number: int) -> int:
        ran.append(f"slow {number}")
        await takes(3600)
        return number

    @outlast.workflow
    async def both() -> int:
        one, many = await asyncio.gather(slow(0), outlast.map(slow, [1, 2], concurrency=1))
        return int(one + sum(many))

    store, clock = versions()
    for _ in range(5):
        async with app(both, store=store, clock=clock) as testing:
            await testing.start(both(), id="it")
            await clock.sleep(1)
        run = await store.get("it")
        assert (run.status, run.owner) == (Status.WAITING, None)
    async with app(both, store=store, clock=clock) as testing:
        assert await testing.get("it").result() == 3
    assert Counter(ran) == {"slow 0": 6, "slow 1": 6, "slow 2": 1}
