"""Steps on other machines: any worker that has the code does them, for runs driven anywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import outlast
from outlast.decorators import Step
from outlast.errors import InvalidValue, RunCancelled, RunFailed
from outlast.model import Event, Status
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualApp, VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testing.crashable_process import CrashableProcess
from outlast.testing.scenario_result import EffectLedger

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    ran.clear()


@outlast.step(queue="gpu", retry=outlast.Retry(attempts=3, delay=60))
async def render(scene: str) -> str:
    attempt = outlast.step_info().attempt
    ran.append(f"{scene} {attempt}")
    await takes(3600 if scene == "deadly" else 30)
    if scene == "flaky" and attempt < 3:
        outlast.heartbeat(attempt)
        raise ConnectionError("no GPU")
    if scene == "broken":
        raise ConnectionError("no GPU")
    return f"{scene} after {outlast.last_heartbeat(int)}"


@outlast.step(queue="gpu", at_most_once=True)
async def once() -> str:
    ran.append("once")
    await takes(3600)
    return "done"


@outlast.step(queue="cpu")
def count(text: str) -> int:
    return len(text)


@outlast.workflow
async def film(scenes: list[str]) -> list[str]:
    return await asyncio.gather(*[render(scene) for scene in scenes])


@outlast.workflow
async def careful() -> str:
    return await once()


class Machines:
    """Two processes on one store: one drives runs, the other does steps."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.store = MemoryStore(clock=self.clock)

    def driver(self, *workflows: outlast.Workflow[..., Any]) -> Any:
        return app(*workflows, store=self.store, clock=self.clock, name="driver")

    def worker(self, *steps: Step[..., Any]) -> Any:
        return app(store=self.store, clock=self.clock, name="worker", steps=steps)

    async def dies(self, *steps: Step[..., Any], after: float) -> None:
        """A worker that is killed after so many seconds."""
        process = CrashableProcess(self.store, self.clock, EffectLedger())
        worker = outlast.App(process.store, name="mortal", steps=steps)
        process.attach(worker, asyncio.create_task(worker.open()))
        await self.clock.sleep(after)
        process.die()
        await process.discard()


@pytest.fixture
def machines() -> Machines:
    return Machines()


def told(history: list[Event]) -> list[str]:
    return [f"{event.type} {event.step_name}".strip() for event in history]


@pytest.mark.proves("I10")
async def test_a_run_left_to_others_asks_for_its_first_step_once() -> None:
    """Begun by one process and driven by another, from its first line: nothing was under way, so
    nothing is tried again."""
    machines = Machines()
    async with machines.driver(careful) as driver, machines.worker(once):
        run = await driver.start(careful(), here=False)
        assert await run.result() == "done"
        history = await machines.store.history(run.id)
    assert [event.type for event in history].count("step.started") == 1
    assert ran == ["once"]


@pytest.mark.proves("S-15")
async def test_a_step_is_done_elsewhere_while_its_run_is_on_disk(machines: Machines) -> None:
    """The run leaves memory; its outcome comes through the inbox."""
    async with machines.driver(film) as driver:
        run = await driver.start(film(["opening", "ending"]), id="f")
        await machines.clock.sleep(1)
        record = await driver.get("f").status()
        assert (record.status, record.wait_kind, record.owner) == (Status.WAITING, "task", None)
        async with machines.worker(render):
            assert await run.result() == ["opening after None", "ending after None"]
        assert sorted(told(await driver.get("f").history())) == sorted(
            [
                "workflow.started",
                "step.started 0/render",
                "step.started 1/render",
                "step.completed 0/render",
                "step.completed 1/render",
                "workflow.completed",
            ]
        )
    assert await machines.store.find_available_tasks(limit=10) == []


async def test_one_process_can_do_both() -> None:
    """Embedded, with no other process at all."""
    async with app(film, steps=[render]) as virtual:
        assert await (await virtual.start(film(["all"]))).result() == ["all after None"]


async def test_errors_are_retried_by_the_policy_and_reports_go_along(machines: Machines) -> None:
    """The next attempt knows how far the last one came."""
    async with machines.driver(film) as driver, machines.worker(render):
        run = await driver.start(film(["flaky"]))
        assert await run.result() == ["flaky after 2"]
        assert ran == ["flaky 1", "flaky 2", "flaky 3"]
        ran.clear()
        failing = await driver.start(film(["broken"]))
        with pytest.raises(RunFailed, match="no GPU"):
            await failing.result()
        assert len(ran) == 3


@pytest.mark.proves("I10", "S-13")
async def test_a_worker_that_dies_costs_its_lease(machines: Machines) -> None:
    """Then any other one has the task."""
    async with machines.driver(film) as driver:
        run = await driver.start(film(["one"]))
        await machines.dies(render, after=10)
        async with machines.worker(render):
            assert await run.result() == ["one after None"]
    assert ran == ["one 1", "one 1"]


@pytest.mark.proves("I10")
async def test_a_task_that_kills_its_workers_ends_in_failure(machines: Machines) -> None:
    """Deliveries are counted before the work starts."""
    async with machines.driver(film) as driver:
        run = await driver.start(film(["deadly"]))
        for _ in range(3):
            await machines.dies(render, after=100)
        async with machines.worker(render):
            with pytest.raises(RunFailed, match="died while it ran"):
                await run.result()
    assert ran == ["deadly 1"] * 3


@pytest.mark.proves("I10", "I30")
async def test_a_worker_that_is_stopped_tells_the_run(machines: Machines) -> None:
    """A deploy counts for nothing, however often it happens."""
    async with machines.driver(film) as driver:
        run = await driver.start(film(["long"]))
        for _ in range(5):
            async with machines.worker(render):
                await machines.clock.sleep(5)
        async with machines.worker(render):
            assert await run.result() == ["long after None"]
    assert ran == [f"long {attempt}" for attempt in range(1, 7)]


@pytest.mark.proves("I10")
async def test_what_must_not_be_repeated_fails_if_its_worker_dies(machines: Machines) -> None:
    """Nobody knows how far it came, so nobody tries again."""
    async with machines.driver(careful) as driver:
        run = await driver.start(careful())
        await machines.dies(once, after=10)
        async with machines.worker(once):
            with pytest.raises(RunFailed, match="died while it ran"):
                await run.result()
    assert ran == ["once"]


@pytest.mark.proves("I32")
async def test_a_worker_leaves_alone_what_it_has_no_code_for(machines: Machines) -> None:
    """It is not even counted."""
    async with machines.driver(careful) as driver, machines.worker(render):
        run = await driver.start(careful())
        await machines.clock.sleep(100)
        assert (await run.status()).status is Status.WAITING
        [task] = await machines.store.find_available_tasks(limit=10)
        assert (task.name, task.attempt) == ("once", 0)


async def test_a_cancelled_run_takes_its_tasks_back(machines: Machines) -> None:
    """Nobody does what nobody waits for."""
    async with machines.driver(film) as driver:
        run = await driver.start(film(["nobody wants it"]))
        await machines.clock.sleep(1)
        assert len(await machines.store.find_available_tasks(limit=10)) == 1
        await run.cancel()
        with pytest.raises(RunCancelled):
            await run.result()
        assert await machines.store.find_available_tasks(limit=10) == []


async def test_code_that_stops_waiting_takes_its_task_back(machines: Machines) -> None:
    """In the commit that records it."""

    @outlast.workflow
    async def impatient() -> str:
        try:
            async with asyncio.timeout(60):
                return await render("slow")
        except TimeoutError:
            return "given up"

    async with machines.driver(impatient) as driver:
        assert await (await driver.start(impatient())).result() == "given up"
        assert await machines.store.find_available_tasks(limit=10) == []


async def test_a_failed_run_is_retried_with_a_new_task(machines: Machines) -> None:
    """What was done before stays done."""
    async with machines.driver(film) as driver:
        run = await driver.start(film(["broken", "fine"]), id="r")
        async with machines.worker(render):
            with pytest.raises(RunFailed):
                await run.result()
        await driver.get("r").retry()
        async with machines.worker(render):
            with pytest.raises(RunFailed):
                await run.result()
    assert [one for one in ran if "fine" in one] == ["fine 1"]
    assert len(ran) > 4


async def test_a_plain_step_runs_in_a_thread_of_the_worker() -> None:
    """As it does where its run is."""

    @outlast.workflow
    async def counts() -> int:
        return await count("four")

    async with app(counts, steps=[count]) as virtual:
        assert await (await virtual.start(counts())).result() == 4


async def test_bad_input() -> None:
    """A step without a queue is nothing for a worker, and one with a queue nothing for a map."""

    @outlast.step
    async def local(number: int) -> int:
        return number

    with pytest.raises(InvalidValue, match="has no queue"):
        outlast.App("memory:", steps=[local])

    @outlast.workflow
    async def maps() -> list[str]:
        return await outlast.map(render, ["a"])

    async with app(maps) as virtual:
        with pytest.raises(RunFailed, match="has a queue"):
            await _ended(virtual, maps)


async def _ended(virtual: VirtualApp, workflow: outlast.Workflow[..., Any]) -> Any:
    return await (await virtual.start(workflow())).result()


@outlast.step(queue="gpu", retry=outlast.Retry(attempts=2, delay=0, jitter=0))
async def cancels_itself(always: bool) -> str:
    attempt = outlast.step_info().attempt
    ran.append(f"attempt {attempt}")
    if always or attempt == 1:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
    return f"after {attempt}"


@outlast.workflow
async def asks_it(always: bool) -> str:
    return await cancels_itself(always)


@pytest.mark.proves("I10")
async def test_a_step_that_cancels_its_own_task_has_failed(machines: Machines) -> None:
    """Nobody has cut it off, so each is a failed attempt at once: its task is not handed out again when
    the lease ends, as if its worker had died."""
    async with machines.driver(asks_it) as driver, machines.worker(cancels_itself):
        begun = machines.clock.now()
        assert await (await driver.start(asks_it(always=False))).result() == "after 2"
        with pytest.raises(RunFailed, match=r"after 2 attempts: RuntimeError: .*cancelled itself"):
            await (await driver.start(asks_it(always=True))).result()
        assert ran == ["attempt 1", "attempt 2"] * 2
        assert (machines.clock.now() - begun).total_seconds() < 1


async def test_a_loop_that_ends_is_no_step_that_cancels_itself() -> None:
    """Who cancels all tasks of a loop cuts the step off: it is done by the next worker, as its first
    attempt."""
    machines = Machines()
    async with machines.driver(careful) as driver:
        run = await driver.start(careful())
        before = asyncio.all_tasks()
        worker = outlast.App(machines.store, name="worker", steps=[once])
        await worker.open()
        await machines.clock.sleep(1)
        assert ran == ["once"]
        ended = asyncio.all_tasks() - before
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        assert "step.failed" not in [event.type for event in await machines.store.history(run.id)]
        assert (await machines.store.get(run.id)).inbox == 0
        await worker.close()
