"""Activities: the last known state of a step's execution, addressed by its own id alone."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec import Raw

from outlast.errors import Conflict, Fenced, NotFound
from outlast.model import Activity, Commit, Status
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import TTL, begin, refused, take

MOMENT = datetime(2031, 1, 1, 12, 30, 0, 7, tzinfo=UTC)
FULL = Activity(
    id="charge/7",
    run_id="r",
    name="charge",
    status=Status.FAILED,
    input=Raw(b'{"b": 1, "a": 2}'),
    output=Raw(b"null"),
    error="declined \x00 ✓",
    attempt=3,
    started_at=MOMENT,
    ended_at=MOMENT,
)


class Activities(StoreContract, needs=(Capability.ACTIVITIES,)):
    """`save_activity`, `find_activity`, `get_activity`, `activities`."""

    @pytest.mark.proves("M-06", "M-07", "M-45", "I28")
    async def test_an_activity_comes_back_with_all_its_fields(self, store: Store) -> None:
        """A saved state is found by the id of the activity, without naming the run."""
        await begin(store, "r")
        await store.save_activity(FULL)
        assert await store.find_activity(FULL.id) == FULL
        assert await store.get_activity(FULL.id) == FULL

    @pytest.mark.proves("M-06", "M-45")
    async def test_an_activity_with_few_fields(self, store: Store) -> None:
        """What was left out has its default."""
        await begin(store, "r")
        bare = Activity(id="a", run_id="r")
        await store.save_activity(bare)
        assert await store.get_activity("a") == bare

    @pytest.mark.proves("M-07", "C-06", "R-21")
    async def test_an_activity_that_is_not_there(self, store: Store) -> None:
        """`find_activity` gives None, `get_activity` raises `NotFound`, a run without has none."""
        assert await store.find_activity("a") is None
        with pytest.raises(NotFound) as caught:
            await store.get_activity("a")
        assert (caught.value.kind, caught.value.id) == ("activity", "a")
        assert await store.activities("unknown") == []

    @pytest.mark.proves("M-06")
    async def test_the_last_state_saved_wins(self, store: Store) -> None:
        """Saving again replaces the whole state, also with an older or emptier one."""
        await begin(store, "r")
        await store.save_activity(FULL)
        again = Activity(id=FULL.id, run_id="r", status=Status.RUNNING, attempt=1)
        await store.save_activity(again)
        assert await store.get_activity(FULL.id) == again
        assert await store.activities("r") == [again]

    @pytest.mark.proves("M-06", "D-38")
    async def test_the_activities_of_a_run_come_by_id(self, store: Store) -> None:
        """All activities of one run, in the order of their ids, and those of no other."""
        for id in ("r", "s"):
            await begin(store, id)
        for id, run_id in [("b", "r"), ("a", "r"), ("B", "r"), ("x", "s")]:
            await store.save_activity(Activity(id=id, run_id=run_id))
        assert [one.id for one in await store.activities("r")] == ["B", "a", "b"]
        assert [one.id for one in await store.activities("s")] == ["x"]

    @pytest.mark.proves("M-07")
    async def test_an_activity_id_is_one_activity(self, store: Store) -> None:
        """The id is unique over all runs: saved for another run, the activity belongs to that one."""
        for id in ("r", "s"):
            await begin(store, id)
        await store.save_activity(FULL)
        moved = msgspec.structs.replace(FULL, run_id="s")
        await store.save_activity(moved)
        assert await store.find_activity(FULL.id) == moved
        assert await store.activities("r") == []
        assert await store.activities("s") == [moved]

    @pytest.mark.proves("M-06", "C-06")
    async def test_an_activity_needs_a_run(self, store: Store) -> None:
        """There is no activity without the run it is part of."""
        with pytest.raises(NotFound):
            await store.save_activity(FULL)
        assert await store.find_activity(FULL.id) is None

    @pytest.mark.proves("I12")
    async def test_a_refused_commit_saves_no_activity(self, store: Store) -> None:
        """The states in a commit share its fate."""
        await begin(store, "r")
        await refused(store, Commit(run_id="r", expected=9, activities=(FULL,)), Conflict)
        assert await store.find_activity(FULL.id) is None

    @pytest.mark.proves("I5")
    async def test_a_stale_owner_saves_no_activity(self, store: Store) -> None:
        """Activity states are fenced like everything else."""
        await begin(store, "r")
        claim = await take(store, "r")
        await store.save_activity(FULL, token=claim.token)
        await self.advance(store, 2 * TTL)
        await take(store, "r", owner="other")
        late = msgspec.structs.replace(FULL, attempt=99)
        with pytest.raises(Fenced):
            await store.save_activity(late, token=claim.token)
        assert await store.get_activity(FULL.id) == FULL
