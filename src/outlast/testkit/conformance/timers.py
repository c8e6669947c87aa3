"""Timers: durable wake-ups for engines that ask the store which are due. Each fires once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlast.errors import Conflict, Fenced, InvalidCommit, InvalidId, InvalidValue, NotFound
from outlast.model import Commit, Timer
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    done,
    events,
    refused,
    take,
    unchanged,
)


class Timers(StoreContract, needs=(Capability.TIMERS,)):
    """`schedule_timer`, `timers`, `due_timers`, `mark_timer_fired`."""

    async def _timer(self, store: Store, run_id: str, id: str, seconds: float) -> Timer:
        """Schedule a timer `seconds` from now."""
        fire_at = await store.now() + timedelta(seconds=seconds)
        timer = Timer(run_id=run_id, id=id, fire_at=fire_at)
        await store.schedule_timer(timer)
        return timer

    @pytest.mark.proves("M-44", "C-16")
    async def test_a_timer_is_kept(self, store: Store) -> None:
        """A scheduled timer is shown with its run, unfired, to the microsecond."""
        await begin(store, "r")
        timer = await self._timer(store, "r", "t", 100.000001)
        assert await store.timers("r") == [timer]
        assert not timer.fired

    @pytest.mark.proves("M-44")
    async def test_a_run_without_timers(self, store: Store) -> None:
        """An unknown run and one without timers both have none."""
        await begin(store, "r")
        assert await store.timers("r") == []
        assert await store.timers("unknown") == []
        assert await store.due_timers() == []

    @pytest.mark.proves("M-44", "C-16")
    async def test_scheduling_a_timer_again_changes_nothing(self, store: Store) -> None:
        """An id that the run has is left alone, with another time too, and after it fired."""
        await begin(store, "r")
        timer = await self._timer(store, "r", "t", 100)
        await self._timer(store, "r", "t", 5)
        assert await store.timers("r") == [timer]
        assert await store.mark_timer_fired("r", "t")
        await self._timer(store, "r", "t", 5)
        assert [one.fired for one in await store.timers("r")] == [True]

    @pytest.mark.proves("M-44")
    async def test_the_timers_of_a_run_come_by_time_and_id(self, store: Store) -> None:
        """Timers are listed in the order in which they fire."""
        await begin(store, "r")
        base = await store.now() + timedelta(minutes=1)
        for id, seconds in [("c", 2), ("b", 1), ("a", 2), ("z", 0)]:
            fire_at = base + timedelta(seconds=seconds)
            await store.schedule_timer(Timer(run_id="r", id=id, fire_at=fire_at))
        assert [timer.id for timer in await store.timers("r")] == ["z", "b", "a", "c"]

    @pytest.mark.proves("I15", "M-44")
    async def test_a_timer_is_due_when_its_time_has_come(self, store: Store) -> None:
        """Never before, by the store's clock; afterwards until it is marked as fired."""
        await begin(store, "r")
        timer = await self._timer(store, "r", "t", 100)
        await self.advance(store, 50)
        assert await store.due_timers() == []
        await self.advance(store, 50)
        assert await store.due_timers() == [timer]
        await self.advance(store, 10**6)
        assert await store.due_timers() == [timer]

    @pytest.mark.proves("M-44", "I15")
    async def test_the_caller_may_name_the_moment(self, store: Store) -> None:
        """`due_timers(now=…)` answers for that moment; a timer is due at its very time."""
        await begin(store, "r")
        timer = await self._timer(store, "r", "t", 100)
        assert await store.due_timers(now=timer.fire_at) == [timer]
        assert await store.due_timers(now=timer.fire_at - timedelta(microseconds=1)) == []

    @pytest.mark.proves("M-44", "C-08")
    async def test_due_timers_come_oldest_first_over_all_runs(self, store: Store) -> None:
        """The limit cuts off the youngest; at one moment run and timer id decide."""
        base = await store.now()
        for run_id in ("b", "a"):
            await begin(store, run_id)
        for run_id, id, seconds in [("a", "3", 3), ("b", "1", 1), ("b", "2", 2), ("a", "2", 2)]:
            fire_at = base + timedelta(seconds=seconds)
            await store.schedule_timer(Timer(run_id=run_id, id=id, fire_at=fire_at))
        await self.advance(store, 60)
        due = [(timer.run_id, timer.id) for timer in await store.due_timers()]
        assert due == [("b", "1"), ("a", "2"), ("b", "2"), ("a", "3")]
        first = [(timer.run_id, timer.id) for timer in await store.due_timers(limit=2)]
        assert first == due[:2]
        with pytest.raises(InvalidValue):
            await store.due_timers(limit=0)

    @pytest.mark.proves("I15", "M-44")
    async def test_a_timer_fires_once(self, store: Store) -> None:
        """The call that marks it gets True, all others False; it is not due any more."""
        await begin(store, "r")
        await self._timer(store, "r", "t", 0)
        answers = [await store.mark_timer_fired("r", "t") for _ in range(3)]
        assert answers == [True, False, False]
        await self.advance(store, 60)
        assert await store.due_timers() == []
        assert [(one.id, one.fired) for one in await store.timers("r")] == [("t", True)]

    @pytest.mark.proves("M-44", "C-16")
    async def test_a_timer_may_be_fired_early(self, store: Store) -> None:
        """Marking is the caller's decision: a timer that is cancelled is marked before its time."""
        await begin(store, "r")
        await self._timer(store, "r", "t", 100)
        assert await store.mark_timer_fired("r", "t")
        await self.advance(store, 200)
        assert await store.due_timers() == []

    @pytest.mark.proves("M-44")
    async def test_a_timer_that_is_not_there_does_not_fire(self, store: Store) -> None:
        """An unknown timer is False; the timer of an unknown run is `NotFound`."""
        await begin(store, "r")
        assert not await store.mark_timer_fired("r", "unknown")
        with pytest.raises(NotFound):
            await store.mark_timer_fired("unknown", "t")
        with pytest.raises(NotFound):
            await self._timer(store, "unknown", "t", 1)

    @pytest.mark.proves("I27", "M-44")
    async def test_timers_of_two_runs_do_not_mix(self, store: Store) -> None:
        """A timer is named by its run and its id together."""
        for run_id in ("a", "b"):
            await begin(store, run_id)
            await self._timer(store, run_id, "t", 0)
        assert await store.mark_timer_fired("a", "t")
        await self.advance(store, 60)
        assert [timer.run_id for timer in await store.due_timers()] == ["b"]

    @pytest.mark.proves("I12", "C-16", "I15")
    async def test_timers_change_with_their_commit_or_not_at_all(self, store: Store) -> None:
        """One commit marks a timer, schedules another and says which it fired."""
        await begin(store, "r")
        first = await self._timer(store, "r", "first", 0)
        second = Timer(run_id="r", id="second", fire_at=first.fire_at)
        stale = Commit(run_id="r", expected=9, fired=("first",), timers=(second,))
        await refused(store, stale, Conflict)
        consume = Commit(
            run_id="r", events=events("r", 1), fired=("first", "unknown"), timers=(second,)
        )
        assert (await done(store, consume)).fired == ("first",)
        await self.advance(store, 60)
        assert [timer.id for timer in await store.due_timers()] == ["second"]

    @pytest.mark.proves("I15", "I5")
    async def test_a_stale_owner_fires_no_timer(self, store: Store) -> None:
        """Timers are fenced like everything else."""
        await begin(store, "r")
        await self._timer(store, "r", "t", 0)
        claim = await take(store, "r")
        await self.advance(store, 2 * TTL)
        await take(store, "r", owner="other")
        async with unchanged(store, "r"):
            with pytest.raises(Fenced):
                await store.mark_timer_fired("r", "t", token=claim.token)
        assert len(await store.due_timers()) == 1

    @pytest.mark.proves("K-15")
    async def test_bad_timers_are_refused(self, store: Store) -> None:
        """A timer has a name, and belongs to the run whose commit brings it."""
        await begin(store, "r")
        now = await store.now()
        async with unchanged(store, "r", "s"):
            for id in ("", "a\x00b", "x" * 2000):
                with pytest.raises(InvalidId):
                    await store.schedule_timer(Timer(run_id="r", id=id, fire_at=now))
            foreign = Timer(run_id="s", id="t", fire_at=now)
            with pytest.raises(InvalidCommit):
                await store.commit([Commit(run_id="r", timers=(foreign,))])
