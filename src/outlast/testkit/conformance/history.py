"""Histories: an append-only log per run, read whole, from a position, or as a stream."""

from __future__ import annotations

import pytest
from msgspec import Raw

from outlast.errors import Conflict, DuplicateEvent, InvalidCommit, InvalidValue, NotFound
from outlast.model import Commit
from outlast.ports import Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import begin, done, event, events, gathered, unchanged


class Histories(StoreContract):
    """Append and read."""

    # -- append -------------------------------------------------------------------------------

    @pytest.mark.proves("R-04", "R-06", "M-03", "K-03")
    async def test_append_begins_a_run_and_returns_its_last_sequence(self, store: Store) -> None:
        """The first append creates the run; the cursor that comes back is the last position."""
        assert await store.append("r", events("r", 3)) == 3
        assert await store.append("r", [event("r")]) == 4
        assert [one.sequence for one in await store.history("r")] == [1, 2, 3, 4]

    @pytest.mark.proves("K-04", "R-04")
    async def test_appending_nothing_changes_nothing(self, store: Store) -> None:
        """An empty append returns the last sequence and does not create a run."""
        assert await store.append("r", []) == 0
        assert not await store.exists("r")
        await begin(store, "s", *events("s", 2))
        async with unchanged(store, "s"):
            assert await store.append("s", []) == 2

    @pytest.mark.proves("C-02", "M-03", "I1")
    async def test_without_expectation_the_store_numbers_the_events(self, store: Store) -> None:
        """A number that an event brings along counts for nothing then."""
        await store.append("r", [event("r")])
        assert await store.append("r", [event("r", sequence=7), event("r", sequence=7)]) == 3
        assert [one.sequence for one in await store.history("r")] == [1, 2, 3]

    @pytest.mark.proves("K-08", "C-02")
    async def test_append_with_an_expected_sequence(self, store: Store) -> None:
        """Only the writer that knows the last sequence appends; the other one gets both numbers."""
        assert await store.append("r", [event("r")], expected=0) == 1
        assert await store.append("r", [event("r")], expected=1) == 2
        async with unchanged(store, "r"):
            with pytest.raises(Conflict) as caught:
                await store.append("r", [event("r")], expected=1)
        assert (caught.value.expected, caught.value.actual) == (1, 2)

    @pytest.mark.proves("K-08", "I1")
    async def test_append_cannot_begin_a_run_in_the_middle(self, store: Store) -> None:
        """An unknown run is at 0: expecting more is a conflict and creates nothing."""
        with pytest.raises(Conflict) as caught:
            await store.append("r", [event("r")], expected=3)
        assert (caught.value.expected, caught.value.actual) == (3, 0)
        assert not await store.exists("r")

    @pytest.mark.proves("K-03", "K-08", "C-02")
    async def test_events_may_bring_their_own_sequences(self, store: Store) -> None:
        """`append_events` appends events that are numbered by the caller, each last + 1."""
        await store.append_events([event("r", sequence=1)])
        await store.append_events([event("r", sequence=2), event("r", sequence=3)])
        assert await store.last_sequence("r") == 3

    @pytest.mark.proves("K-08", "K-04", "K-13", "I1")
    @pytest.mark.parametrize(
        ("sequences", "error"),
        [
            pytest.param([4], Conflict, id="a gap"),
            pytest.param([2], Conflict, id="taken"),
            pytest.param([1], Conflict, id="the first, again"),
            pytest.param([3, 5], InvalidCommit, id="a gap inside"),
            pytest.param([3, 3], InvalidCommit, id="twice the same"),
            pytest.param([4, 3], InvalidCommit, id="backwards"),
            pytest.param([0], InvalidCommit, id="zero"),
            pytest.param([-1], InvalidCommit, id="negative"),
        ],
    )
    async def test_a_sequence_that_is_not_next_is_refused(
        self, store: Store, sequences: list[int], error: type[Exception]
    ) -> None:
        """Whatever is not last + 1 fails, and nothing of the batch is appended."""
        await begin(store, "r", *events("r", 2))
        async with unchanged(store, "r"):
            with pytest.raises(error):
                await store.append_events([event("r", sequence=n) for n in sequences])

    @pytest.mark.proves("K-08", "I1")
    async def test_the_first_sequence_of_an_unknown_run_is_1(self, store: Store) -> None:
        """An event numbered 2 cannot be the first, and is not renumbered in silence."""
        with pytest.raises(Conflict) as caught:
            await store.append_events([event("r", sequence=2)])
        assert (caught.value.expected, caught.value.actual) == (1, 0)
        assert await store.history("r") == []

    @pytest.mark.proves("K-09")
    async def test_a_duplicate_event_id_cannot_be_appended(self, store: Store) -> None:
        """An id that is recorded raises `DuplicateEvent`, which says where it is."""
        await store.append("r", [event("r"), event("r", id="charge")])
        async with unchanged(store, "r"):
            with pytest.raises(DuplicateEvent) as caught:
                await store.append("r", [event("r"), event("r", id="charge")])
        assert caught.value.sequence == 2

    @pytest.mark.proves("K-09", "K-13")
    async def test_a_duplicate_event_id_within_one_batch(self, store: Store) -> None:
        """Two events of one batch cannot share an id, and neither is appended."""
        twins = [event("r", id="charge", sequence=1), event("r", id="charge", sequence=2)]
        with pytest.raises(InvalidCommit):
            await store.append_events(twins)
        assert await store.history("r") == []

    @pytest.mark.proves("K-04")
    async def test_appending_no_numbered_events_does_nothing(self, store: Store) -> None:
        """An empty batch of numbered events is no error."""
        await store.append_events([])

    @pytest.mark.proves("I1")
    async def test_an_event_of_another_run_is_not_appended(self, store: Store) -> None:
        """An event says which run it belongs to, and goes nowhere else."""
        with pytest.raises(InvalidCommit):
            await store.append("r", [event("s")])
        assert not await store.exists("r")

    @pytest.mark.proves("R-04", "I21")
    async def test_a_child_is_appended_to_like_any_run(self, store: Store) -> None:
        """Its id says whose child it is, so that it may also begin with its first events."""
        await begin(store, "p")
        await begin(store, "p~1", parent="p")
        assert await store.append("p~1", events("p~1", 2)) == 2
        assert await store.append("p~2", events("p~2", 1)) == 1
        assert (await store.get("p~2")).parent == "p"

    # -- read ---------------------------------------------------------------------------------

    @pytest.mark.proves("M-04", "K-05", "R-02", "R-03")
    async def test_history_is_everything_in_order(self, store: Store) -> None:
        """All events come back, in the order of their sequences, with their data."""
        own = events("r", 12)
        for one in own:
            await store.append("r", [one])
        assert [(e.id, e.data) for e in await store.history("r")] == [(e.id, e.data) for e in own]

    @pytest.mark.proves("M-05", "K-06")
    @pytest.mark.parametrize(
        ("after", "found"),
        [(0, [1, 2, 3, 4]), (1, [2, 3, 4]), (3, [4]), (4, []), (5, []), (2**40, [])],
    )
    async def test_history_after_a_position_excludes_it(
        self, store: Store, after: int, found: list[int]
    ) -> None:
        """`after` is exclusive; at and past the end there is nothing."""
        await begin(store, "r", *events("r", 4))
        assert [one.sequence for one in await store.history("r", after=after)] == found

    @pytest.mark.proves("K-06")
    async def test_a_negative_position_is_an_error(self, store: Store) -> None:
        """A position before the beginning is a mistake of the caller, in every way of reading."""
        await begin(store, "r", *events("r", 2))
        with pytest.raises(InvalidValue):
            await store.history("r", after=-1)
        with pytest.raises(InvalidValue):
            await anext(store.stream("r", after=-1))

    @pytest.mark.proves("K-06", "C-08")
    @pytest.mark.parametrize(
        ("after", "limit", "found"),
        [(0, 2, [1, 2]), (1, 2, [2, 3]), (3, 5, [4]), (4, 1, []), (0, 4, [1, 2, 3, 4])],
    )
    async def test_history_is_read_in_pages(
        self, store: Store, after: int, limit: int, found: list[int]
    ) -> None:
        """`limit` bounds what is read, counted from the position on."""
        await begin(store, "r", *events("r", 4))
        page = await store.history("r", after=after, limit=limit)
        assert [one.sequence for one in page] == found

    @pytest.mark.proves("C-08")
    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_page_of_nothing_is_an_error(self, store: Store, limit: int) -> None:
        """A limit below 1 is refused, not read as something else."""
        await begin(store, "r", *events("r", 2))
        with pytest.raises(InvalidValue):
            await store.history("r", limit=limit)

    @pytest.mark.proves("K-10", "M-04", "C-06")
    async def test_a_run_without_events_has_an_empty_history(self, store: Store) -> None:
        """An unknown run and an empty one both have the empty history, never an error."""
        await begin(store, "empty")
        assert await store.history("empty") == []
        assert await store.history("unknown") == []
        assert await gathered(store.stream("empty")) == []

    @pytest.mark.proves("K-07")
    async def test_the_last_sequence(self, store: Store) -> None:
        """0 for an unknown or empty run, else the sequence of the last event."""
        await begin(store, "empty")
        await begin(store, "full", *events("full", 3))
        sequences = [await store.last_sequence(id) for id in ("unknown", "empty", "full")]
        assert sequences == [0, 0, 3]

    @pytest.mark.proves("I2", "I1")
    async def test_what_is_recorded_stays_as_it_is(self, store: Store) -> None:
        """Later commits never change an event that is recorded."""
        await begin(store, "r", *events("r", 3))
        before = await store.history("r")
        for _ in range(3):
            await done(store, Commit(run_id="r", events=events("r", 2)))
        assert (await store.history("r"))[:3] == before

    @pytest.mark.proves("K-12", "I27")
    async def test_histories_do_not_mix(self, store: Store) -> None:
        """Each run has its own events and its own numbers."""
        for n in range(3):
            for id in ("a", "b"):
                await store.append(id, [event(id, data=Raw(b'"%s%d"' % (id.encode(), n)))])
        for id in ("a", "b"):
            found = await store.history(id)
            assert [one.sequence for one in found] == [1, 2, 3]
            assert {one.run_id for one in found} == {id}
            assert [bytes(one.data) for one in found] == [
                b'"%s%d"' % (id.encode(), n) for n in range(3)
            ]

    @pytest.mark.proves("K-11", "M-02")
    async def test_a_history_is_a_private_copy(self, store: Store) -> None:
        """Whatever a caller does to what it gave or got, the store keeps what was recorded."""
        metadata = {"trace": "1"}
        await begin(store, "r", event("r", metadata=metadata))
        metadata["trace"] = "2"
        found = await store.history("r")
        found[0].metadata["trace"] = "3"
        found.clear()
        assert [one.metadata for one in await store.history("r")] == [{"trace": "1"}]

    @pytest.mark.proves("K-05", "R-05", "I1")
    async def test_a_long_history(self, store: Store) -> None:
        """Thousands of events in one commit are numbered, read at once, and streamed."""
        count = 9_000
        await begin(store, "r", *events("r", count))
        expected = list(range(1, count + 1))
        assert [one.sequence for one in await store.history("r")] == expected
        assert [one.sequence for one in await gathered(store.stream("r"))] == expected
        last = (await store.history("r", after=count - 1))[0]
        assert bytes(last.data) == b'{"n":%d}' % count

    # -- stream -------------------------------------------------------------------------------

    @pytest.mark.proves("R-05", "R-16")
    @pytest.mark.parametrize("page", [1, 2, 3, 5, 6, 1000])
    async def test_a_stream_yields_all_events_whatever_its_pages(
        self, store: Store, page: int
    ) -> None:
        """Events come one by one and in order, whether the last page is full or not."""
        await begin(store, "r", *events("r", 6))
        found = await gathered(store.stream("r", page=page))
        assert [one.sequence for one in found] == [1, 2, 3, 4, 5, 6]

    @pytest.mark.proves("R-05", "R-19", "M-05")
    async def test_a_stream_goes_on_after_a_position(self, store: Store) -> None:
        """A reader that has seen some events streams the rest."""
        await begin(store, "r", *events("r", 5))
        found = await gathered(store.stream("r", after=3, page=1))
        assert [one.sequence for one in found] == [4, 5]

    @pytest.mark.proves("R-05", "R-21", "C-06")
    async def test_a_stream_may_insist_on_the_run(self, store: Store) -> None:
        """With `must_exist` an unknown run is `NotFound`; without, and for an empty run, nothing."""
        await begin(store, "empty")
        assert await gathered(store.stream("unknown")) == []
        assert await gathered(store.stream("empty", must_exist=True)) == []
        with pytest.raises(NotFound) as caught:
            await anext(store.stream("unknown", must_exist=True))
        assert (caught.value.kind, caught.value.id) == ("run", "unknown")

    @pytest.mark.proves("R-05", "S-22")
    async def test_a_stream_holds_nothing_while_it_is_read(self, store: Store) -> None:
        """A run may be written while its history is streamed; the stream stays in order."""
        await begin(store, "r", *events("r", 3))
        seen = []
        async for one in store.stream("r", page=1):
            seen.append(one.sequence)
            assert len(seen) <= 6
            if one.sequence <= 3:
                await store.append("r", [event("r")])
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) >= 3
        assert await store.last_sequence("r") == 6

    @pytest.mark.proves("M-03", "K-04")
    async def test_the_histories_of_several_runs(self, store: Store) -> None:
        """Each whole and in order, as read alone; an unknown run has none, twice is once."""
        for id, count in (("a", 3), ("b", 12), ("c", 1)):
            await store.append(id, events(id, count))
        found = await store.histories(["b", "nobody", "a", "b"])
        assert set(found) == {"a", "b", "nobody"}
        for id in ("a", "b", "nobody"):
            assert found[id] == await store.history(id)
        assert await store.histories([]) == {}
