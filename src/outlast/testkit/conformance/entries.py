"""Entries: the audit lines of a run, in order, for as long as the run is there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from outlast.errors import Conflict, Fenced, NotFound
from outlast.model import Commit, Entry
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import TTL, begin, done, events, refused, take, unchanged

MOMENT = datetime(2031, 1, 1, tzinfo=UTC)


def entry(run_id: str, step_id: str, **fields: Any) -> Entry:
    """An audit line about a step."""
    return Entry(run_id=run_id, step_id=step_id, **{"action": "completed", **fields})


class Entries(StoreContract, needs=(Capability.ENTRIES,)):
    """`record` and `entries`."""

    @pytest.mark.proves("D-09", "C-06")
    async def test_a_run_without_audit_lines(self, store: Store) -> None:
        """An unknown run and a silent one both have no entries."""
        await begin(store, "r")
        assert await store.entries("r") == []
        assert await store.entries("unknown") == []

    @pytest.mark.proves("D-08", "D-13", "I28")
    async def test_an_audit_line_comes_back_with_all_its_fields(self, store: Store) -> None:
        """`record` returns the entry, and `entries` shows it as it was recorded."""
        await begin(store, "r")
        full = Entry(
            id="e-1",
            run_id="r",
            step_id="charge#1",
            step_type="http",
            action="failed",
            duration_ms=1234,
            input=Raw(b'{"b": 1, "a": 2}'),
            output=Raw(b"null"),
            error="NUL \x00 and ✓",
            timestamp=MOMENT + timedelta(microseconds=1),
        )
        assert await store.record(full) == full
        assert await store.entries("r") == [full]

    @pytest.mark.proves("D-13")
    async def test_an_audit_line_with_few_fields(self, store: Store) -> None:
        """What was left out is None, and a duration of 0 is a duration."""
        await begin(store, "r")
        await store.record(entry("r", "a", timestamp=MOMENT))
        await store.record(entry("r", "b", duration_ms=0, error="", timestamp=MOMENT))
        first, second = await store.entries("r")
        assert (first.duration_ms, first.input, first.output, first.error) == (None,) * 4
        assert (second.duration_ms, second.error) == (0, "")

    @pytest.mark.proves("D-13")
    @pytest.mark.parametrize("action", ["completed", "halted", "failed", "reviewed by hand"])
    async def test_what_was_done_is_any_word(self, store: Store, action: str) -> None:
        """Completed, halted, failed, or a word of your own."""
        await begin(store, "r")
        await store.record(entry("r", "a", action=action))
        assert [one.action for one in await store.entries("r")] == [action]

    @pytest.mark.proves("D-09", "D-13")
    async def test_audit_lines_without_a_time_are_stamped(self, store: Store) -> None:
        """The store's clock dates an entry that has no time of its own."""
        await begin(store, "r")
        before = await store.now()
        recorded = await store.record(entry("r", "a"))
        await done(store, Commit(run_id="r", entries=(entry("r", "b"),)))
        for found in await store.entries("r"):
            assert before <= found.timestamp <= await store.now()
        assert recorded in await store.entries("r")

    @pytest.mark.proves("D-09")
    async def test_audit_lines_come_by_time_then_in_the_order_of_recording(
        self, store: Store
    ) -> None:
        """Time decides; of one moment, what was recorded first comes first, whatever its id."""
        await begin(store, "r")
        late, early = MOMENT + timedelta(seconds=9), MOMENT - timedelta(seconds=9)
        for step, moment, id in [
            ("1", MOMENT, "z"),
            ("2", late, "y"),
            ("3", MOMENT, "a"),
            ("4", early, "m"),
            ("5", MOMENT, "k"),
        ]:
            await store.record(entry("r", step, timestamp=moment, id=id))
        assert [one.step_id for one in await store.entries("r")] == ["4", "1", "3", "5", "2"]

    @pytest.mark.proves("D-38", "I27")
    async def test_audit_lines_belong_to_their_run(self, store: Store) -> None:
        """Entries are linked to one run and show up nowhere else."""
        for id in ("a", "b", "a~1"):
            await begin(store, id, parent="a" if "~" in id else None)
            await store.record(entry(id, f"step of {id}"))
        for id in ("a", "b", "a~1"):
            assert [one.step_id for one in await store.entries(id)] == [f"step of {id}"]

    @pytest.mark.proves("D-38", "C-06")
    async def test_an_audit_line_needs_a_run(self, store: Store) -> None:
        """There is no entry without the run it is about."""
        with pytest.raises(NotFound):
            await store.record(entry("unknown", "a"))
        assert await store.entries("unknown") == []

    @pytest.mark.proves("I12", "D-08")
    async def test_audit_lines_are_written_with_their_commit_or_not_at_all(
        self, store: Store
    ) -> None:
        """Entries of a commit appear with its events; those of a refused one never."""
        await begin(store, "r")
        lines = (entry("r", "a", timestamp=MOMENT), entry("r", "b", timestamp=MOMENT))
        await store.commit([Commit(run_id="r", events=events("r", 1), entries=lines)])
        assert await store.entries("r") == list(lines)
        late = Commit(run_id="r", expected=0, entries=(entry("r", "c"),))
        await refused(store, late, Conflict)

    @pytest.mark.proves("I5")
    async def test_a_stale_owner_records_nothing(self, store: Store) -> None:
        """Audit lines are fenced like everything else."""
        await begin(store, "r")
        claim = await take(store, "r")
        await store.record(entry("r", "mine"), token=claim.token)
        await self.advance(store, 2 * TTL)
        await take(store, "r", owner="other")
        async with unchanged(store, "r"):
            with pytest.raises(Fenced):
                await store.record(entry("r", "late"), token=claim.token)
