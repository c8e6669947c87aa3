"""A schedule is a run: it fires, it is changed while it runs, and it gets over absences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import outlast
import outlast.sync
from outlast.errors import NotFound, RunCancelled, RunExists, UpdateFailed, WorkflowMisuse
from outlast.schedules import schedule_workflow
from outlast.schedules.timing import stamp
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualApp, VirtualClock
from outlast.testing import sleep as takes
from outlast.testing.virtual_clock import START

HOUR = 3600.0
ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    ran.clear()


@outlast.step
async def work(seconds: float) -> None:
    ran.append(outlast.step_info().run_id)
    await takes(seconds)


@outlast.workflow
async def job(seconds: float = 0.0) -> None:
    await work(seconds)


class JumpyClock(VirtualClock):
    """A virtual clock whose hands somebody moves."""

    moved = timedelta()

    def now(self) -> datetime:
        return super().now() + self.moved


class World:
    """A store and a clock that outlive the processes on them."""

    def __init__(self) -> None:
        self.clock = JumpyClock()
        self.store = MemoryStore(clock=self.clock)

    @asynccontextmanager
    async def process(
        self, *schedules: outlast.Schedule, **options: Any
    ) -> AsyncIterator[VirtualApp]:
        """One life of an app."""
        app = VirtualApp(self.store, self.clock, workflows=[job], schedules=schedules, **options)
        async with app:
            yield app

    def at(self, hours: float) -> str:
        """The id of the run of schedule ``s`` at that time."""
        return f"s@{stamp(START + timedelta(hours=hours))}"


@pytest.fixture
def world() -> World:
    """A fresh one."""
    return World()


def hourly(seconds: float = 0.0, **options: Any) -> outlast.Schedule:
    """Every hour a job that takes so long."""
    return outlast.Schedule("s", job(seconds=seconds), every=HOUR, **options)


async def test_it_fires_when_it_says(world: World) -> None:
    """On the hour, once each, and the run tells which schedule it is of."""
    async with world.process(hourly()) as app:
        await world.clock.sleep(3.5 * HOUR)
        assert ran == [world.at(1), world.at(2), world.at(3)]
        found = [run.id async for run in app.client.find(attributes={"schedule": "s"})]
        assert found == ran[::-1]
        state = await app.client.schedules.get("s")
    assert (state.status, state.fired, state.last) == ("active", 3, world.at(3))
    assert state.next == START + timedelta(hours=4)


async def test_it_goes_on_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It continues as new now and then, so that its history stays short; nothing is lost by it."""
    monkeypatch.setattr(schedule_workflow, "MAX_TURNS", 5)
    async with world.process(hourly(overlap="allow")) as app:
        await world.clock.sleep(16.5 * HOUR)
        assert ran == [world.at(number + 1) for number in range(16)]
        assert len(await app.get("schedule@s").history()) < 30
        assert (await app.client.schedules.get("s")).fired == 16


async def test_jitter_puts_off(world: World) -> None:
    """Not before its time and not later than the jitter; the run is called by the time without."""
    async with world.process(hourly(jitter=600)) as app:
        await world.clock.sleep(20.5 * HOUR)
        begun = [(await app.get(run_id).status()).created_at for run_id in ran]
    assert ran == [world.at(number + 1) for number in range(20)]
    late = [at - START - timedelta(hours=number + 1) for number, at in enumerate(begun)]
    assert all(timedelta() <= one <= timedelta(seconds=601) for one in late)
    assert len(set(late)) > 10


async def test_a_schedule_with_an_end_ends(world: World) -> None:
    """After its last firing its run completes."""
    last = START + timedelta(hours=2)
    async with world.process(hourly(ends_at=last)) as app:
        await app.get("schedule@s").result(timeout=10 * HOUR)
        assert (await app.client.schedules.get("s")).status == "completed"
    assert ran == [world.at(1), world.at(2)]


# -- overlap ----------------------------------------------------------------------------------


async def test_overlap_skip(world: World) -> None:
    """A firing while the run before is at work is left out."""
    async with world.process(hourly(1.5 * HOUR, overlap="skip")) as app:
        await world.clock.sleep(5.25 * HOUR)
        state = await app.client.schedules.get("s")
    assert ran == [world.at(1), world.at(3), world.at(5)]
    assert state.skipped == 2


async def test_overlap_allow(world: World) -> None:
    """All of them, side by side."""
    async with world.process(hourly(1.5 * HOUR, overlap="allow")):
        await world.clock.sleep(5.25 * HOUR)
    assert ran == [world.at(number) for number in (1, 2, 3, 4, 5)]


async def test_overlap_wait(world: World) -> None:
    """One firing waits for its turn; those behind it are left out."""
    async with world.process(hourly(2.5 * HOUR, overlap="wait")) as app:
        await world.clock.sleep(8.25 * HOUR)
        state = await app.client.schedules.get("s")
        begun = [(await app.get(run_id).status()).created_at - START for run_id in ran]
    assert ran == [world.at(1), world.at(2), world.at(4)]
    minutes = [round(one.total_seconds() / 60) for one in begun]
    assert minutes == [60, 210, 360]
    assert state.skipped > 0


@pytest.mark.parametrize("overlap", ["wait", "cancel"])
async def test_a_schedule_that_waits_takes_no_place_in_its_worker(
    world: World, overlap: Any
) -> None:
    """The run that it waits for may need that place: with one only, both would wait for ever."""

    @outlast.workflow
    async def nap() -> None:
        await outlast.sleep(1.5 * HOUR)

    schedule = outlast.Schedule("s", nap(), every=HOUR, overlap=overlap)
    async with world.process(schedule) as app:
        app._engine.claimer.concurrency = 1
        await world.clock.sleep(8 * HOUR)
        state = await app.client.schedules.get("s")
        assert state.fired >= 4
        assert (await app.get(world.at(1)).status()).status.terminal


async def test_overlap_cancel(world: World) -> None:
    """The run before is cancelled, and the new one begins when it has ended: its running step is
    awaited, so that what it did is known."""
    async with world.process(hourly(1.25 * HOUR, overlap="cancel")) as app:
        await world.clock.sleep(2.1 * HOUR)
        assert ran == [world.at(1)]
        await world.clock.sleep(0.4 * HOUR)
        with pytest.raises(RunCancelled, match="next run of schedule s"):
            await app.get(world.at(1)).result()
    assert ran == [world.at(1), world.at(2)]


# -- absence ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catch_up", "made_up"), [("none", []), ("last", [5]), ("all", [2, 3, 4, 5])]
)
async def test_what_was_missed_is_caught_up_by_the_policy(
    world: World, catch_up: Any, made_up: list[int]
) -> None:
    """Nobody was there from half past one to half past five."""
    schedule = hourly(catch_up=catch_up, overlap="allow")
    async with world.process(schedule):
        await world.clock.sleep(1.5 * HOUR)
    await world.clock.sleep(4 * HOUR)
    async with world.process(schedule) as app:
        await world.clock.sleep(HOUR)
        state = await app.client.schedules.get("s")
    assert ran == [world.at(number) for number in [1, *made_up, 6]]
    assert state.missed == 4 - len(made_up)


async def test_catching_up_has_a_limit(world: World) -> None:
    """The newest of them, in order."""
    schedule = hourly(catch_up="all", catch_up_limit=2, overlap="allow")
    async with world.process(schedule):
        pass
    await world.clock.sleep(5.5 * HOUR)
    async with world.process(schedule):
        await world.clock.sleep(0.25 * HOUR)
    assert ran == [world.at(4), world.at(5)]


@pytest.mark.proves("I29")
async def test_clocks_that_jump(world: World) -> None:
    """Forward, it is an absence; back, nothing fires a second time, and it goes on when the time
    has come again."""
    schedule = hourly(overlap="allow")
    async with world.process(schedule) as app:
        await world.clock.sleep(2.5 * HOUR)
        world.clock.moved += timedelta(hours=5)
        world.store.notifier.wake()  # it would be looked at in a second or five
        await world.clock.sleep(0.25 * HOUR)
        assert ran == [world.at(1), world.at(2), world.at(7)]
        world.clock.moved -= timedelta(hours=3)
        world.store.notifier.wake()
        await world.clock.sleep(4 * HOUR)
        assert ran == [world.at(number) for number in (1, 2, 7, 8)]
        assert (await app.client.schedules.get("s")).fired == 4


@given(
    absences=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 900)), max_size=3),
    minutes=st.sampled_from([47, 60, 240]),
    policy=st.sampled_from(["none", "last", "all"]),
    limit=st.integers(1, 5),
)
@settings(max_examples=10, deadline=None)
async def test_absences_against_a_model(
    absences: list[tuple[int, int]], minutes: int, policy: Any, limit: int
) -> None:
    """Whenever workers come and go: exactly the runs that a few lines say."""
    world, expected = World(), set[datetime]()
    ran.clear()
    schedule = outlast.Schedule(
        "s",
        job(),
        every=60 * minutes,
        overlap="allow",
        catch_up=policy,
        catch_up_limit=limit,
        starts_at=START,
    )
    every, left = timedelta(minutes=minutes), START
    for there, away in [*absences, (60, 0)]:
        # Half a minute beside the full one, so that nobody comes or goes at a firing.
        came, goes = world.clock.now(), world.clock.now() + timedelta(minutes=there)
        all_times = [START + every * k for k in range(1, 5000) if START + every * k <= goes]
        missed = [one for one in all_times if left < one <= came]
        if policy == "none":
            missed = [one for one in missed[-1:] if came - one <= timedelta(minutes=1)]
        expected.update(missed[-(limit if policy == "all" else 1) :])
        expected.update(one for one in all_times if came < one)
        async with world.process(schedule):
            await world.clock.sleep(60.0 * there + (30 if came == START else 0))
        left = world.clock.now()
        await world.clock.sleep(60.0 * away)
    assert sorted(ran) == sorted(f"s@{stamp(one)}" for one in expected)


# -- changes ----------------------------------------------------------------------------------


async def test_pause_and_resume(world: World) -> None:
    """What falls into the pause is not made up; who did it, and why, is on record."""
    async with world.process(hourly(catch_up="all")) as app:
        await world.clock.sleep(1.5 * HOUR)
        assert await app.client.schedules.pause("s", by="ada", note="the database moves")
        assert not await app.client.schedules.pause("s")
        await world.clock.sleep(3 * HOUR)
        paused = await app.client.schedules.get("s")
        assert (paused.status, paused.next) == ("paused", None)
        assert await app.client.schedules.resume("s", by="bob")
        assert not await app.client.schedules.resume("s")
        await world.clock.sleep(HOUR)
        changes = (await app.client.schedules.get("s")).changes
    assert ran == [world.at(1), world.at(5)]
    assert [(one.what, one.by, one.note) for one in changes] == [
        ("paused", "ada", "the database moves"),
        ("resumed", "bob", ""),
    ]


async def test_a_pause_survives_its_worker(world: World) -> None:
    """It is stored: whoever comes next does not fire, declared in code or not."""
    async with world.process(hourly()) as app:
        await app.client.schedules.pause("s")
    async with world.process(hourly()):
        await world.clock.sleep(3 * HOUR)
    assert ran == []


async def test_a_pause_without_a_worker_is_durable_at_once(world: World) -> None:
    """While no worker runs a schedule is paused and resumed all the same, seen as such, and on record;
    the worker that comes does not fire first what has come due meanwhile."""
    async with world.process(hourly(catch_up="all")) as app:
        await world.clock.sleep(0.5 * HOUR)
    before = world.clock.monotonic()
    schedules = app.client.schedules
    assert await schedules.pause("s", by="ada")
    assert not await schedules.pause("s")
    assert (await schedules.get("s")).status == "paused"
    assert await schedules.resume("s")
    assert [one.status for one in await schedules.list()] == ["active"]
    assert await schedules.pause("s", by="bob")
    assert world.clock.monotonic() - before < 10  # it does not wait for a worker to answer
    await world.clock.sleep(5 * HOUR)
    async with world.process(hourly(catch_up="all")) as app:
        await world.clock.sleep(2 * HOUR)
        state = await app.client.schedules.get("s")
    assert (ran, state.status) == ([], "paused")
    assert [(one.what, one.by) for one in state.changes] == [
        ("paused", "ada"), ("resumed", ""), ("paused", "bob"),
    ]  # fmt: skip


async def test_trigger_starts_a_run_now(world: World) -> None:
    """Paused or busy, it does not matter; the next firing is as it was."""
    async with world.process(hourly()) as app:
        await app.client.schedules.pause("s")
        run = await app.client.schedules.trigger("s", by="ada")
        await run.result()
        other = await app.client.schedules.trigger("s")
        await other.result()
        assert ran == [run.id, other.id]
        assert run.id != other.id


async def test_backfill_makes_up_a_time_that_is_past(world: World) -> None:
    """One run a firing, the end not included; what is there already is left alone."""
    async with world.process(hourly(overlap="allow")) as app:
        await world.clock.sleep(2.5 * HOUR)
        first = START - timedelta(hours=2)
        found = await app.client.schedules.backfill("s", first, START + timedelta(hours=2))
        assert found == [world.at(number) for number in (-2, -1, 0, 1)]
        again = await app.client.schedules.backfill("s", first, START + timedelta(hours=2))
        assert again == found
        await world.clock.sleep(0.25 * HOUR)
        assert sorted(ran) == sorted(world.at(number) for number in (-2, -1, 0, 1, 2))
        with pytest.raises(UpdateFailed, match="shorter time"):
            await app.client.schedules.backfill("s", START - timedelta(days=365), START)


async def test_what_waited_when_it_was_paused_waits_on(world: World) -> None:
    """The run before ends within the pause: nothing fires until somebody resumes it."""
    async with world.process(hourly(1.5 * HOUR, overlap="wait")) as app:
        await world.clock.sleep(2.25 * HOUR)  # the second one waits
        await app.client.schedules.pause("s")
        await world.clock.sleep(2 * HOUR)
        assert ran == [world.at(1)]
        await app.client.schedules.resume("s")
        await world.clock.sleep(0.25 * HOUR)
        assert ran == [world.at(1), world.at(2)]


@outlast.workflow
async def other_job() -> None:
    await work(0.0)


async def test_a_schedule_changes_to_another_workflow(world: World) -> None:
    """By the client, paused as it is: from then on runs of that one begin, and nothing is forgotten."""
    async with world.process(hourly()) as app, app_with_other(world) as other:
        await world.clock.sleep(1.5 * HOUR)
        await app.client.schedules.pause("s", by="ada")
        changed = outlast.Schedule("s", other_job(), every=HOUR)
        assert await other.client.schedules.change(changed, by="bob")
        await world.clock.sleep(2 * HOUR)
        assert ran == [world.at(1)]
        assert await other.client.schedules.resume("s")
        await world.clock.sleep(HOUR)
        assert (await app.get(world.at(4)).status()).workflow == "other_job"
        state = await app.client.schedules.get("s")
    assert ran == [world.at(1), world.at(4)]
    assert (state.fired, state.status) == (2, "active")
    assert [one.what for one in state.changes] == ["paused", "changed", "resumed"]


def app_with_other(world: World) -> VirtualApp:
    """A process that has the code of another workflow."""
    return VirtualApp(world.store, world.clock, workflows=[job, other_job])


async def test_code_that_renames_a_workflow_resumes_nothing(world: World) -> None:
    """A paused schedule that is declared for another workflow is paused."""
    async with world.process(hourly()) as app:
        await app.client.schedules.pause("s", by="ada")
    renamed = outlast.Schedule("s", other_job(), every=HOUR)
    app = VirtualApp(world.store, world.clock, workflows=[other_job], schedules=[renamed])
    async with app:
        await world.clock.sleep(2.5 * HOUR)
        state = await app.client.schedules.get("s")
        assert (state.status, state.spec.workflow) == ("paused", "other_job")
    assert ran == []


@pytest.mark.parametrize("how", ["declare", "resume"])
async def test_a_schedule_whose_run_was_ended_is_revived(world: World, how: str) -> None:
    """By the code that declares it, or by who resumes it; what it knew is kept."""
    async with world.process(hourly()) as app:
        await world.clock.sleep(1.5 * HOUR)
        await app.get("schedule@s").terminate("by mistake")
        assert (await app.client.schedules.get("s")).status not in ("active", "paused")
        await world.clock.sleep(2 * HOUR)
        assert ran == [world.at(1)]
        if how == "resume":
            assert await app.client.schedules.resume("s", by="ada")
    async with world.process(hourly()) as app:
        await world.clock.sleep(HOUR)
        state = await app.client.schedules.get("s")
    assert ran == [world.at(1), world.at(4)]
    assert (state.status, state.fired) == ("active", 2)
    assert [one.what for one in state.changes] == ["revived"]


async def test_what_has_come_to_its_end_is_not_revived(world: World) -> None:
    """Declared again as it was, it has ended all the same."""
    ends = START + timedelta(hours=1.5)
    async with world.process(hourly(ends_at=ends)):
        await world.clock.sleep(2 * HOUR)
    async with world.process(hourly(ends_at=ends)) as app:
        await world.clock.sleep(HOUR)
        assert (await app.client.schedules.get("s")).status == "completed"
    assert ran == [world.at(1)]


async def test_runs_of_a_schedule_wait_in_a_queue(world: World) -> None:
    """With its key and priority, and under its rules."""
    place = outlast.QueueOptions("reports", key="acme", priority=3)
    policy = outlast.QueuePolicy(queue="reports", concurrency=1)
    schedule = hourly(2.5 * HOUR, overlap="allow", queue=place)
    async with world.process(schedule, queues=[policy]) as app:
        await world.clock.sleep(2.25 * HOUR)
        assert ran == [world.at(1)]
        waits = await app.get(world.at(2)).status()
        assert (waits.queue, waits.priority, waits.wait_kind) == ("reports", 3, "queue")
        [stats] = await app.client.queues.stats("reports")
        assert [(one.key, one.ready, one.in_flight) for one in stats.keys] == [("acme", 1, 1)]
        await world.clock.sleep(1.5 * HOUR)
        assert ran == [world.at(1), world.at(2)]


async def test_jitter_longer_than_the_interval_loses_nothing(world: World) -> None:
    """Nothing is put off past the next one, so all of them fire, in order."""
    async with world.process(hourly(jitter=10 * HOUR, catch_up="last", overlap="allow")) as app:
        await world.clock.sleep(20.99 * HOUR)
        state = await app.client.schedules.get("s")
    assert ran[:19] == [world.at(number + 1) for number in range(19)]
    assert state.missed == 0


async def test_code_that_changed_changes_the_schedule(world: World) -> None:
    """The next process declares another time: the schedule is that one from then on."""
    async with world.process(hourly()):
        await world.clock.sleep(1.5 * HOUR)
    two_hours = outlast.Schedule("s", job(), every=2 * HOUR)
    async with world.process(two_hours) as app:
        await world.clock.sleep(4 * HOUR)
        changes = (await app.client.schedules.get("s")).changes
    assert ran == [world.at(1), world.at(2), world.at(4)]
    assert [(one.what, one.by) for one in changes] == [("changed", "code")]


async def test_new_code_at_the_same_times_makes_up_what_was_missed(world: World) -> None:
    """A deployment that takes in the time of a firing, and changes what is done then, loses none."""
    async with world.process(hourly(1.0)):
        await world.clock.sleep(0.75 * HOUR)
    await world.clock.sleep(0.5 * HOUR)
    async with world.process(hourly(2.0)):
        await world.clock.sleep(0.25 * HOUR)
    assert ran == [world.at(1)]


async def test_schedules_at_run_time(world: World) -> None:
    """Created, changed, listed and deleted through the client, without a word in code."""
    async with world.process() as app:
        await app.client.schedules.create(hourly())
        with pytest.raises(RunExists):
            await app.client.schedules.create(hourly())
        await app.client.schedules.create(outlast.Schedule("a", job(), cron="@daily"))
        assert [one.name for one in await app.client.schedules.list()] == ["a", "s"]
        assert await app.client.schedules.change(
            outlast.Schedule("s", job(), every=2 * HOUR), by="ada"
        )
        await world.clock.sleep(2.5 * HOUR)
        assert await app.client.schedules.delete("s")
        assert not await app.client.schedules.delete("s")
        await world.clock.sleep(3 * HOUR)
        for act in (
            app.client.schedules.get,
            app.client.schedules.pause,
            app.client.schedules.trigger,
        ):
            with pytest.raises(NotFound, match="schedule 's'"):
                await act("s")
        assert [one.name for one in await app.client.schedules.list()] == ["a"]
    assert ran == [world.at(2)]


@pytest.mark.proves("I32")
async def test_who_lacks_the_workflow_keeps_no_schedule_of_it(world: World) -> None:
    """It cannot create one, and leaves those that are there to whoever has the code."""

    @outlast.workflow
    async def other() -> None:
        return None

    async with world.process() as app:
        with pytest.raises(WorkflowMisuse, match="not registered"):
            await app.client.schedules.create(outlast.Schedule("o", other(), every=HOUR))
        await app.client.schedules.create(hourly())
    await world.clock.sleep(2.5 * HOUR)
    async with outlast.App(world.store, workflows=[other]):
        await world.clock.sleep(10)
        assert ran == []
    async with world.process():
        await world.clock.sleep(60)
    assert ran == [world.at(2)]


def test_the_scheduled_workflow_is_registered_by_its_schedule() -> None:
    """What is named once need not be named twice, and what outlast adds is not shown."""
    app = outlast.App(MemoryStore(), schedules=[hourly(), outlast.Schedule("t", job(), every=60)])
    assert app.workflow_names == {"job"}


async def test_who_misspells_a_workflow_is_told_of_those_of_the_app_alone() -> None:
    """What outlast adds to keep schedules is not proposed, neither in the list nor as a guess."""
    async with outlast.App(MemoryStore(), schedules=[hourly()]) as app:
        for name in ("nothing", "schedule of jab"):
            with pytest.raises(NotFound, match=r"there are job$"):
                await app.start(name)


def test_start_is_in_utc() -> None:
    """What these tests rely on."""
    assert START.tzinfo is UTC
    assert START.minute == START.second == 0


def test_the_same_without_a_loop() -> None:
    """A synchronous program has all of it."""
    with outlast.sync.App("memory:", schedules=[hourly()]) as app:
        app.client.schedules.create(outlast.sync.Schedule("t", job(), every=60))
        assert app.client.schedules.change(outlast.sync.Schedule("t", job(), every=120))
        assert app.client.schedules.pause("t")
        assert app.client.schedules.resume("t")
        assert app.client.schedules.trigger("t").id.startswith("t@")
        first = datetime(2026, 1, 1, tzinfo=UTC)
        assert app.client.schedules.backfill("t", first, first + timedelta(minutes=2)) == [
            "t@20260101T000000Z"
        ]
        assert [one.name for one in app.client.schedules.list()] == ["s", "t"]
        assert app.client.schedules.delete("t")
        assert app.client.schedules.get("s").status == "active"
