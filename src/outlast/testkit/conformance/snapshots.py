"""Snapshots: one fold of the history per run, to shorten replay. The last one saved stands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import Raw

from outlast.errors import Conflict, Fenced, InvalidCommit, InvalidValue, NotFound
from outlast.model import Commit, Progress, Snapshot, Status
from outlast.model.run_contents import Position
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    done,
    events,
    gathered,
    refused,
    take,
    unchanged,
)

MOMENT = datetime(2031, 1, 1, 12, 30, 0, 7, tzinfo=UTC)


def snapshot(run_id: str, sequence: int = 0, data: bytes = b"state", **fields: Any) -> Snapshot:
    """A snapshot of a run."""
    return Snapshot(run_id=run_id, sequence=sequence, data=data, **fields)


class Snapshots(StoreContract, needs=(Capability.SNAPSHOTS,)):
    """`save_snapshot`, `load_snapshot`, `drop_snapshot`, `snapshot_ids`."""

    @pytest.mark.proves("R-11", "R-12", "S-01", "S-02", "S-10", "C-09", "I28")
    async def test_a_snapshot_comes_back_with_all_its_fields(self, store: Store) -> None:
        """Position, definition, codec and every byte are kept."""
        full = Snapshot(
            run_id="r",
            sequence=7,
            data=bytes(range(256)) * 3,
            definition="sha256-abc",
            codec="json+zlib",
            created_at=MOMENT,
        )
        await store.save_snapshot(full)
        assert await store.load_snapshot("r") == full
        assert await store.find_snapshot("r") == full

    @pytest.mark.proves("S-10", "R-10")
    async def test_a_snapshot_begins_a_run(self, store: Store) -> None:
        """Saving the snapshot of an unknown run creates the run, with the snapshot's definition."""
        await store.save_snapshot(snapshot("r", definition="sha256-abc"))
        assert (await store.get("r")).definition == "sha256-abc"

    @pytest.mark.proves("S-01", "C-12")
    async def test_a_snapshot_leaves_the_record_as_it_is(self, store: Store) -> None:
        """Saving the snapshot of a run that exists changes nothing that a caller decides."""
        await begin(store, "r", definition="kept", error="kept", status=Status.HALTED)
        await store.save_snapshot(snapshot("r", definition="other"))
        record = await store.get("r")
        assert (record.definition, record.error, record.status) == (
            "kept",
            "kept",
            Status.HALTED,
        )

    @pytest.mark.proves("S-02", "R-12", "R-21", "C-06")
    async def test_a_snapshot_that_is_not_there(self, store: Store) -> None:
        """`find_snapshot` gives None, `load_snapshot` raises `NotFound` with the run's id."""
        await begin(store, "r")
        for id in ("r", "unknown"):
            assert await store.find_snapshot(id) is None
            with pytest.raises(NotFound) as caught:
                await store.load_snapshot(id)
            assert (caught.value.kind, caught.value.id) == ("snapshot", id)

    @pytest.mark.proves("S-01", "R-07", "C-09")
    async def test_the_last_snapshot_saved_wins(self, store: Store) -> None:
        """There is one per run; a later save replaces it, also with one of an earlier sequence."""
        await store.save_snapshot(snapshot("r", 3, b"three"))
        await store.save_snapshot(snapshot("r", 5, b"five"))
        assert (await store.load_snapshot("r")).data == b"five"
        await store.save_snapshot(snapshot("r", 2, b"two"))
        found = await store.load_snapshot("r")
        assert (found.sequence, found.data) == (2, b"two")

    @pytest.mark.proves("R-11", "I28")
    async def test_a_snapshot_may_be_empty(self, store: Store) -> None:
        """No bytes are a state too, and not the lack of one."""
        await store.save_snapshot(snapshot("r", data=b""))
        assert (await store.load_snapshot("r")).data == b""

    @pytest.mark.proves("S-01")
    async def test_a_snapshot_without_a_time_is_stamped(self, store: Store) -> None:
        """The store's clock dates it."""
        before = await store.now()
        await store.save_snapshot(snapshot("r"))
        assert before <= (await store.load_snapshot("r")).created_at <= await store.now()

    @pytest.mark.proves("S-03", "C-07")
    async def test_a_snapshot_can_be_dropped(self, store: Store) -> None:
        """Dropping says whether there was one; the run and its history stay."""
        await begin(store, "r", *events("r", 2))
        await store.save_snapshot(snapshot("r", 2))
        assert await store.drop_snapshot("r")
        assert not await store.drop_snapshot("r")
        assert not await store.drop_snapshot("unknown")
        assert await store.find_snapshot("r") is None
        assert await store.last_sequence("r") == 2

    @pytest.mark.proves("S-04")
    async def test_the_runs_that_have_a_snapshot(self, store: Store) -> None:
        """Their ids come in order; a run without one, or whose was dropped, is not listed."""
        assert await store.snapshot_ids() == []
        for id in ("c", "a", "B", "d", "é"):
            await store.save_snapshot(snapshot(id))
        await begin(store, "without")
        await store.drop_snapshot("d")
        assert await store.snapshot_ids() == ["B", "a", "c", "é"]

    @pytest.mark.proves("S-04", "C-08")
    async def test_the_runs_that_have_a_snapshot_are_listed_in_pages(self, store: Store) -> None:
        """`after` is exclusive, `limit` bounds the page."""
        for id in "abcde":
            await store.save_snapshot(snapshot(id))
        assert await store.snapshot_ids(limit=2) == ["a", "b"]
        assert await store.snapshot_ids(after="b", limit=2) == ["c", "d"]
        assert await store.snapshot_ids(after="e") == []
        with pytest.raises(InvalidValue):
            await store.snapshot_ids(limit=0)

    @pytest.mark.proves("S-11", "S-16", "S-25")
    async def test_a_snapshot_holds_the_progress_of_a_run(self, store: Store) -> None:
        """Tasks done, their outputs, where the run stands and what it began with come back."""
        progress = Progress(
            input=Raw(b'{"order":7}'),
            completed={"book": Raw(b'"ok"'), "pay": Raw(b"[1,2]")},
            position=Position.AT_FORK,
            at=["ship", "bill"],
            last_completed="pay",
        )
        await store.save_snapshot(snapshot("r", 4, progress.encode()))
        assert Progress.decode((await store.load_snapshot("r")).data) == progress

    @pytest.mark.proves("R-19", "S-16", "C-09")
    async def test_a_run_is_recovered_from_its_snapshot_and_what_came_after(
        self, store: Store
    ) -> None:
        """The snapshot's sequence is a position in the history: the events after it are the rest."""
        await begin(store, "r", *events("r", 3))
        state = b"".join(bytes(one.data) for one in await store.history("r"))
        await store.save_snapshot(snapshot("r", 3, state))
        await store.append("r", events("r", 2))
        found = await store.load_snapshot("r")
        rest = [bytes(one.data) for one in await gathered(store.stream("r", after=found.sequence))]
        whole = b"".join(bytes(one.data) for one in await store.history("r"))
        assert found.data + b"".join(rest) == whole

    @pytest.mark.proves("R-07", "I12", "C-09")
    async def test_a_snapshot_is_written_with_its_commit_or_not_at_all(self, store: Store) -> None:
        """A checkpoint travels with the events it covers."""
        await begin(store, "r")
        covered = Commit(run_id="r", events=events("r", 2), snapshot=snapshot("r", 2, b"two"))
        await done(store, covered)
        assert (await store.load_snapshot("r")).data == b"two"
        stale = Commit(run_id="r", expected=0, snapshot=snapshot("r", 9, b"nine"))
        await refused(store, stale, Conflict)

    @pytest.mark.proves("I5")
    async def test_a_stale_owner_saves_no_snapshot(self, store: Store) -> None:
        """Snapshots are fenced like everything else."""
        await begin(store, "r")
        claim = await take(store, "r")
        await store.save_snapshot(snapshot("r", data=b"mine"), token=claim.token)
        await self.advance(store, 2 * TTL)
        await take(store, "r", owner="other")
        async with unchanged(store, "r"):
            with pytest.raises(Fenced):
                await store.save_snapshot(snapshot("r", data=b"late"), token=claim.token)

    @pytest.mark.proves("K-15", "C-09")
    async def test_a_snapshot_of_another_run_is_refused(self, store: Store) -> None:
        """A commit carries the snapshot of its own run, at a position that can be one."""
        await begin(store, "r")
        for wrong in (snapshot("s"), snapshot("r", -1)):
            async with unchanged(store, "r", "s"):
                with pytest.raises(InvalidCommit):
                    await store.commit([Commit(run_id="r", snapshot=wrong)])
