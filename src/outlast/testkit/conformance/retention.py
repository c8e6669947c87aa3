"""Retention: what ended long ago is removed as whole trees; what lives is never touched."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlast.errors import InvalidValue
from outlast.model import Change, Commit, Run, Status
from outlast.model.run import MOVED, MOVING
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.run_contents import furnish, seen_of
from outlast.testkit.conformance.scenario import (
    begin,
    begin_runnable,
    done,
    finish,
    take,
    unchanged,
)


class Retention(StoreContract, needs=(Capability.RETENTION,)):
    """`expire`."""

    async def _ended(
        self, store: Store, *run_ids: str, status: Status = Status.COMPLETED, **record: object
    ) -> None:
        """Begin and end runs, one second apart."""
        for run_id in run_ids:
            await self.advance(store, 1)
            await begin(store, run_id, **record)
            await finish(store, run_id, status)

    @pytest.mark.proves("I26", "C-05", "D-12")
    async def test_runs_that_ended_before_a_time_are_removed(self, store: Store) -> None:
        """Age counts from the end, not from the beginning."""
        await begin(store, "long")
        await self._ended(store, "old-1", "old-2")
        await self.advance(store, 100)
        middle = await store.now()
        await self.advance(store, 100)
        await self._ended(store, "young")
        await finish(store, "long")
        assert sorted(await store.expire(middle)) == ["old-1", "old-2"]
        assert [await store.exists(id) for id in ("old-1", "young", "long")] == [
            False,
            True,
            True,
        ]

    @pytest.mark.proves("I26", "C-08")
    async def test_the_oldest_go_first(self, store: Store) -> None:
        """A limit leaves those that ended last, whatever their ids."""
        await self._ended(store, "c", "b", "a")
        await self.advance(store, 10)
        assert sorted(await store.expire(await store.now(), limit=2)) == ["b", "c"]
        assert await store.exists("a")

    @pytest.mark.proves("I26", "C-05")
    async def test_a_run_is_not_old_at_its_very_end(self, store: Store) -> None:
        """`before` is exclusive."""
        await self._ended(store, "r")
        ended_at = (await store.get("r")).ended_at
        assert ended_at is not None
        assert await store.expire(ended_at) == []
        assert await store.expire(ended_at + timedelta(microseconds=1)) == ["r"]

    @pytest.mark.proves("I26", "C-05")
    @pytest.mark.parametrize(
        "status",
        [Status.PENDING, Status.RUNNING, Status.WAITING, Status.HALTED, Status.PAUSED],
    )
    async def test_a_live_run_is_never_removed(self, store: Store, status: Status) -> None:
        """However old it is, and whatever it waits for."""
        await begin(store, "r", status=status)
        await self.advance(store, 10**7)
        async with unchanged(store, "r"):
            assert await store.expire(await store.now()) == []
            assert await store.expire(await store.now(), status=list(Status)) == []

    @pytest.mark.proves("I26")
    async def test_a_claimed_run_is_never_removed(self, store: Store) -> None:
        """A claim that has long expired is no end."""
        await begin_runnable(store, "r")
        await take(store, "r")
        await self.advance(store, 10**7)
        assert await store.expire(await store.now()) == []

    @pytest.mark.proves("I26", "C-05")
    async def test_each_status_may_be_kept_for_its_own_time(self, store: Store) -> None:
        """With `status`, only runs that ended so are removed."""
        await self._ended(store, "good")
        await self._ended(store, "bad", status=Status.FAILED)
        await self._ended(store, "cancelled", status=Status.CANCELLED)
        await self.advance(store, 100)
        now = await store.now()
        assert await store.expire(now, status=[Status.FAILED]) == ["bad"]
        remaining = await store.expire(now, status=[Status.COMPLETED, Status.CANCELLED])
        assert sorted(remaining) == ["cancelled", "good"]

    @pytest.mark.proves("I26", "C-08")
    async def test_so_many_trees_are_removed_at_a_time(self, store: Store) -> None:
        """`limit` bounds the work of a call; calls until nothing comes back remove all."""
        await self._ended(store, *"abcde")
        await self.advance(store, 100)
        now = await store.now()
        rounds = [await store.expire(now, limit=2) for _ in range(4)]
        assert [len(gone) for gone in rounds] == [2, 2, 1, 0]
        assert sorted(id for gone in rounds for id in gone) == list("abcde")
        with pytest.raises(InvalidValue):
            await store.expire(now, limit=0)

    @pytest.mark.proves("I26", "C-08")
    async def test_runs_that_must_stay_do_not_hide_the_others(self, store: Store) -> None:
        """A page full of trees that still live does not starve those behind them."""
        for n in range(5):
            await self._ended(store, f"a{n}")
            await begin(store, f"a{n}~live", parent=f"a{n}")
        await self._ended(store, "z")
        await self.advance(store, 100)
        assert await store.expire(await store.now(), limit=2) == ["z"]

    @pytest.mark.proves("I26", "I21")
    async def test_a_tree_stays_while_something_in_it_lives(self, store: Store) -> None:
        """A root that ended is kept, with all below it, until its last descendant ended."""
        await self._ended(store, "root")
        await self._ended(store, "root~done", parent="root")
        await begin(store, "root~done~live", parent="root~done")
        await self.advance(store, 100)
        assert await store.expire(await store.now()) == []
        await finish(store, "root~done~live")
        await self.advance(store, 100)
        assert await store.expire(await store.now()) == ["root"]
        assert not any([await store.exists(id) for id in ("root", "root~done", "root~done~live")])

    @pytest.mark.proves("I26", "I21")
    async def test_the_ended_child_of_a_live_run_stays(self, store: Store) -> None:
        """Its result may still be needed, also if it has an id of its own."""
        await begin(store, "root")
        await self._ended(store, "root~done", "own", parent="root")
        await self.advance(store, 10**7)
        async with unchanged(store, "root", "root~done", "own"):
            assert await store.expire(await store.now()) == []
        await finish(store, "root")
        await self.advance(store, 100)
        assert sorted(await store.expire(await store.now())) == ["own", "root"]

    @pytest.mark.proves("I3", "I26")
    async def test_what_is_being_moved_stays(self, store: Store) -> None:
        """A run that is sealed is closed, but may not be all in another store: it stays, with the tree
        around it and its ended children, until the move is finished."""
        sealed = Change(status=Status.CANCELLED, wait_kind=MOVING, error="moved to x")
        for run_id in ("root", "other"):
            await begin(store, run_id)
        await begin(store, "other~child", parent="other")
        await begin(store, "elsewhere", parent="root")
        for run_id in ("elsewhere", "other"):
            await finish(store, run_id)
        for run_id in ("root", "other~child"):
            await done(store, Commit(run_id=run_id, change=sealed))
        await begin(store, "gone", status=Status.CANCELLED, wait_kind=MOVED, error="moved to x")
        await self.advance(store, 100)
        assert await store.expire(await store.now()) == ["gone"]
        assert await store.expire(await store.now(), status=[Status.CANCELLED]) == []
        for run_id in ("root", "elsewhere", "other", "other~child"):
            assert await store.exists(run_id), run_id

    @pytest.mark.proves("I26", "I25", "C-05")
    async def test_a_tree_is_removed_with_everything_it_owns(self, store: Store) -> None:
        """State, entries, index, keys, facts and the rest expire together."""
        empty = await seen_of(store, "r")
        await furnish(store, "r")
        await finish(store, "r")
        if await store.exists("r~child"):
            await finish(store, "r~child")
        await self.advance(store, 100)
        assert await store.expire(await store.now()) == ["r"]
        assert await seen_of(store, "r") == empty

    @pytest.mark.proves("I26", "I6")
    async def test_an_expired_id_starts_fresh_under_greater_tokens(self, store: Store) -> None:
        """What is removed by age is as gone as what is deleted; tokens still only grow."""
        await begin_runnable(store, "r")
        old = await take(store, "r")
        await finish(store, "r", token=old.token)
        await self.advance(store, 100)
        await store.expire(await store.now())
        await done(store, Commit(run_id="r", create=Run(id="r")))
        assert (await take(store, "r")).token > old.token
