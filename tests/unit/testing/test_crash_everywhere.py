"""crash_everywhere: what it lets pass, what it finds, and how it tells it."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import testing
from outlast.errors import StepFailed
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing import (
    RESIDENCIES,
    At,
    Crash,
    CrashesDiffer,
    ResidencyPolicy,
    crash_everywhere,
)

STARTED, COMPLETED = "step.started", "step.completed"
ledger: dict[str, int] = {}
entries: list[str] = []


@outlast.step(retry=outlast.Retry(attempts=3, delay=60, jitter=0))
async def flaky(number: int) -> int:
    if outlast.step_info().attempt == 1:
        raise ConnectionError("not yet")
    return number + 1


@outlast.step
def book(amount: int) -> int:
    """Idempotent: the same key is booked once."""
    ledger[outlast.step_info().idempotency_key] = amount
    return amount


@outlast.step
async def book_blindly(amount: int) -> int:
    """Not idempotent: each time it runs there is one more entry."""
    entries.append(f"{amount}")
    return amount


@outlast.workflow
async def invoice(amount: int) -> str:
    return f"invoice over {await book(amount)}"


@outlast.workflow
async def order(amount: int) -> str:
    left, right = await asyncio.gather(flaky(amount), flaky(amount + 1))
    await outlast.sleep(days=30)
    answer = await outlast.wait_for_signal("approve", bool, timeout=timedelta(days=3))
    paper = await invoice(left + right)
    return f"{paper}, approved: {answer}"


@outlast.workflow
def plain_order(amount: int) -> str:
    total: Any = flaky(amount)
    outlast.sleep(days=30)  # type: ignore[unused-coroutine]
    answer: Any = outlast.wait_for_signal("approve", bool)
    paper: Any = outlast.child(invoice(total))
    return f"{paper}, approved: {answer}"


@outlast.workflow
async def careless(amount: int) -> int:
    await flaky(amount)
    return await book_blindly(amount)


def observed() -> list[int]:
    return sorted(ledger.values())


@pytest.mark.proves("I7", "I8", "I9", "I12", "I14", "I15", "I16", "I21", "R-16", "S-16")
@pytest.mark.parametrize("workflow", [order, plain_order], ids=["async", "plain"])
async def test_a_sound_workflow_survives_every_crash(workflow: Any) -> None:
    """Steps, retries, a timer, a signal and a child: whichever call of the store the process dies
    at, the result, the histories and the world are the same."""
    sweep = await crash_everywhere(
        workflow,
        20,
        workflows=[invoice],
        actions=[lambda run: run.signal("approve", True)],
        setup=ledger.clear,
        observe=observed,
        strict=True,
    )
    assert sweep.crashes == 3 * len(sweep.store_calls) > 60
    assert sweep.unstable == set()
    assert sweep.ending.runs["run"].result.endswith('approved: True"')
    assert sweep.ending.runs.keys() == {"run", "run~child.invoice"}


@pytest.mark.proves("I7", "I8", "I12", "I14")
async def test_the_same_holds_on_sqlite(tmp_path: Path) -> None:
    """The sweep takes a store of yours, made anew for each run."""
    numbers = count()

    def fresh(clock: Clock) -> Store:
        return SqliteStore(tmp_path / f"{next(numbers)}.db", clock=clock, synchronous="normal")

    sweep = await crash_everywhere(
        order,
        20,
        workflows=[invoice],
        actions=[lambda run: run.signal("approve", True)],
        setup=ledger.clear,
        observe=observed,
        store=fresh,
        sample=30,
    )
    # How often an idle process looks before the end is up to threads: the last calls of the plain
    # run are not always reached again.
    assert 50 <= sweep.crashes <= 60


async def test_a_step_that_is_not_idempotent_is_named() -> None:
    """A crash between a step's effect and its record repeats the effect; the error says where,
    what became of the world, and which step did it."""
    with pytest.raises(CrashesDiffer) as found:
        await crash_everywhere(careless, 7, setup=entries.clear, observe=lambda: list(entries))
    text = str(found.value)
    assert "2 of" in text  # once as it is, once with snapshots and evictions
    assert "process 1 died before store call" in text
    assert "commit (step.completed book_blindly, workflow.completed)" in text
    assert "observed: ['7'] became ['7', '7']" in text
    assert "step 'book_blindly' of 'run' ran 2 times, not 1" in text
    assert "idempotency_key" in text


async def test_a_workflow_that_is_not_deterministic_is_found() -> None:
    """Workflow code whose path depends on something unrecorded halts after a crash: that differs."""
    calls = count()

    @outlast.workflow
    async def fickle() -> int:
        if next(calls) % 2 == 0:
            await flaky(1)
        else:
            await book(1)
        return 1

    with pytest.raises(CrashesDiffer, match="became 'halted'"):
        await crash_everywhere(fickle, setup=lambda: [next(calls) for _ in range(next(calls) % 2)])


@outlast.workflow
async def coin() -> int:
    heads = random.random() < 0.5
    total = await book(1)
    return total + await (book(2) if heads else book_blindly(2))


@outlast.workflow
async def coins() -> int:
    total = 0
    for number in range(6):
        heads = random.random() < 0.5
        total += await (book(number) if heads else book_blindly(number))
    return total


async def test_a_workflow_that_tosses_a_coin_is_found() -> None:
    """Each process draws random numbers of its own."""
    with pytest.raises(CrashesDiffer) as differ:
        await crash_everywhere(coin, setup=ledger.clear)
    assert "status of 'run': 'completed' became 'halted'" in str(differ.value.findings)


@pytest.mark.parametrize("residency", RESIDENCIES.values(), ids=RESIDENCIES)
async def test_what_was_found_by_chance_is_found_again(residency: ResidencyPolicy) -> None:
    """The random numbers of a process follow from the crash: a sweep repeats to the letter."""
    found = []
    for _ in range(2):
        with pytest.raises(CrashesDiffer) as differ:
            await crash_everywhere(coins, setup=ledger.clear, residencies=[residency])
        found.append(differ.value.findings)
    assert found[0] == found[1]
    assert "halted" in str(found[0])


async def test_an_eviction_shows_what_a_crash_would() -> None:
    """A workflow that remembers something outside its record differs without any crash."""
    seen: list[int] = []

    @outlast.workflow
    async def remembers() -> int:
        seen.append(1)
        await book(1)
        return await book(2) + len(seen)

    with pytest.raises(CrashesDiffer, match="without any crash, with ResidencyPolicy"):
        await crash_everywhere(remembers, setup=seen.clear, crashes=[])


@pytest.mark.proves("I8")
async def test_a_store_that_forgets_what_it_acknowledged_is_found() -> None:
    """If a recorded step runs again, it is told as such, whoever is to blame."""

    class Forgetful(MemoryStore):
        """Loses the last event of a run when somebody else reads its history."""

        async def history(self, run_id: str, **kwargs: Any) -> list[Any]:
            events = await super().history(run_id, **kwargs)
            types = [event.type for event in events]
            return events[:2] if types[1:] == [STARTED, COMPLETED, STARTED] else events

    @outlast.workflow
    async def two() -> int:
        return await book(await book(1))

    with pytest.raises(CrashesDiffer, match="began again after its result was recorded"):
        await crash_everywhere(two, store=lambda clock: Forgetful(clock=clock))


async def test_what_no_two_runs_have_in_common_is_not_compared() -> None:
    """A result that is different every time says nothing about crashes; the sweep names it."""

    @outlast.workflow
    async def identified() -> str:
        await book(1)
        return f"{outlast.uuid4()} at {outlast.now()}"

    sweep = await crash_everywhere(identified)
    assert sweep.unstable == {"run.result"}


async def test_what_may_differ_can_be_ignored() -> None:
    """A step that must not be repeated fails after a crash: a workflow may live with that."""

    @outlast.step(at_most_once=True)
    async def launch() -> str:
        return "launched"

    @outlast.workflow
    async def launching() -> str:
        try:
            return await launch()
        except StepFailed as failure:
            return failure.error_type

    with pytest.raises(CrashesDiffer, match="Interrupted"):
        await crash_everywhere(launching)
    await crash_everywhere(launching, ignore=["run.result", "run.history.launch"])


async def test_an_action_can_have_a_time() -> None:
    """`At` acts so many seconds after the start, here before the run waits for it."""

    @outlast.workflow
    async def sleepy() -> str:
        await outlast.sleep(hours=2)
        word: str = await outlast.wait_for_signal("word", str, timeout=timedelta(hours=1))
        return word

    sweep = await crash_everywhere(
        sleepy, actions=[At(3600, lambda run: run.signal("word", "early"))]
    )
    assert sweep.ending.runs["run"].result == '"early"'


async def test_a_person_can_answer_a_halt() -> None:
    """Actions wait for the halt; a second one comes after the first."""

    @outlast.workflow
    async def asking() -> list[str]:
        first = await outlast.halt("name?", str)
        await outlast.sleep(days=1)
        second = await outlast.halt("age?", str)
        return [first, second]

    sweep = await crash_everywhere(
        asking, actions=[lambda run: run.resume("Ada"), lambda run: run.resume("36")]
    )
    assert sweep.ending.runs["run"].result == '["Ada","36"]'


async def test_only_some_kinds_of_crash() -> None:
    """The kinds of crash can be chosen."""
    sweep = await crash_everywhere(careless, 7, crashes=[Crash.AFTER])
    assert sweep.crashes == len(sweep.store_calls)


async def test_a_workflow_that_fails_must_fail_the_same_way() -> None:
    """An outcome is an outcome: a failed run is compared like any other."""

    @outlast.workflow
    async def doomed() -> None:
        await book(1)
        raise ValueError("no")

    sweep = await crash_everywhere(doomed)
    assert sweep.ending.runs["run"].status == "failed"
    assert sweep.ending.runs["run"].error == "ValueError: no"


@pytest.mark.proves("I12")
async def test_the_dead_clean_up_nothing() -> None:
    """The ``finally`` of a step does not run at a crash: a lock that it should give back is still
    taken when the step runs again."""
    taken: list[str] = []

    @outlast.step
    async def locking() -> str:
        was = "taken" if taken else "free"
        taken.append("lock")
        try:
            await testing.sleep(60)
            return was
        finally:
            taken.remove("lock")

    @outlast.workflow
    async def locked() -> str:
        return await locking()

    with pytest.raises(CrashesDiffer, match="'\"free\"' became '\"taken\"'"):
        await crash_everywhere(locked, setup=taken.clear)


async def test_a_step_that_never_ends_is_named() -> None:
    """A sweep does not wait for ever for a body that hangs."""

    @outlast.step
    async def hangs() -> None:
        await asyncio.Event().wait()

    @outlast.workflow
    async def hanging() -> None:
        await hangs()

    with pytest.raises(AssertionError, match=r"these steps do not return.*'hangs' of 'run'"):
        await crash_everywhere(hanging)
