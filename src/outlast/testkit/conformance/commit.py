"""Commits: what one commit makes durable, and what the store adds of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import Raw

from outlast.model import Change, ClaimOnCreate, Commit, Creation, Run, Status
from outlast.model.times import EPOCH
from outlast.ports import Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    done,
    event,
    events,
    outcome_of,
    take,
)


class Commits(StoreContract):
    """One write: run, events and record together."""

    @pytest.mark.proves("M-01", "K-03", "C-12")
    async def test_a_commit_creates_a_run_with_its_first_events(self, store: Store) -> None:
        """A commit that brings a record begins a life and says which and how far it got."""
        run = Run(id="r", workflow="order")
        answer = await done(store, Commit(run_id="r", create=run, events=events("r", 2)))
        assert (answer.run_id, answer.uid) == ("r", run.uid)
        assert (answer.sequence, answer.revision, answer.token) == (2, 1, 0)
        assert (answer.again, answer.still_runnable) == (False, False)
        record = await store.get("r")
        assert (record.uid, record.sequence, record.revision) == (run.uid, 2, 1)

    @pytest.mark.proves("M-03", "K-08", "C-02", "I1")
    async def test_the_store_numbers_events_from_1_without_gaps(self, store: Store) -> None:
        """Sequences are 1, 2, 3 … over all commits of a run, whatever the sizes of the commits."""
        await begin(store, "r", event("r"))
        for size in (1, 3, 2):
            await done(store, Commit(run_id="r", events=events("r", size)))
        assert [one.sequence for one in await store.history("r")] == [1, 2, 3, 4, 5, 6, 7]

    @pytest.mark.proves("M-03", "C-02")
    async def test_a_run_may_begin_without_events(self, store: Store) -> None:
        """A run without events is at sequence 0, and its first event gets 1."""
        assert (await begin(store, "r")).sequence == 0
        assert (await done(store, Commit(run_id="r", events=events("r", 1)))).sequence == 1

    @pytest.mark.proves("K-08", "C-02")
    async def test_a_commit_on_top_of_the_expected_sequence_is_written(self, store: Store) -> None:
        """With the right `expected` a commit is written, also for a run that begins at 0."""
        run = Run(id="r")
        created = Commit(run_id="r", expected=0, create=run, events=events("r", 2))
        assert (await done(store, created)).sequence == 2
        then = Commit(run_id="r", expected=2, events=events("r", 1))
        assert (await done(store, then)).sequence == 3

    @pytest.mark.proves("C-12")
    async def test_every_commit_raises_the_revision_by_one(self, store: Store) -> None:
        """The revision counts commits, with events or without, and can be written on top of."""
        await begin(store, "r")
        changed = await done(store, Commit(run_id="r", change=Change(current_step="a")))
        assert (changed.revision, changed.sequence) == (2, 0)
        appended = await done(store, Commit(run_id="r", revision=2, events=events("r", 5)))
        assert (appended.revision, appended.sequence) == (3, 5)
        assert (await store.get("r")).revision == 3

    @pytest.mark.proves("M-01", "C-12")
    async def test_upsert_leaves_the_record_of_a_run_that_exists(self, store: Store) -> None:
        """An upsert into a run that is there ignores the record it brings and appends."""
        first = await begin(store, "r", workflow="first", error="kept", input=Raw(b"1"))
        other = Run(id="r", workflow="second", input=Raw(b"2"), status=Status.HALTED)
        commit = Commit(run_id="r", create=other, creation=Creation.UPSERT, events=(event("r"),))
        answer = await done(store, commit)
        assert (answer.uid, answer.sequence) == (first.uid, 1)
        record = await store.get("r")
        assert (record.workflow, record.error, record.input) == ("first", "kept", Raw(b"1"))
        assert record.status is Status.PENDING

    @pytest.mark.proves("M-01", "D-06")
    async def test_upsert_creates_a_run_that_does_not_exist(self, store: Store) -> None:
        """An upsert begins the run with the record it brings."""
        run = Run(id="r", workflow="order", input=Raw(b"[1]"))
        await done(store, Commit(run_id="r", create=run, creation=Creation.UPSERT))
        record = await store.get("r")
        assert (record.uid, record.workflow, record.input) == (run.uid, "order", Raw(b"[1]"))

    @pytest.mark.proves("K-01", "I29")
    async def test_events_without_a_time_are_stamped_by_the_store(self, store: Store) -> None:
        """The store's clock dates an event that has no time of its own."""
        before = await store.now()
        await begin(store, "r", event("r"))
        (recorded,) = await store.history("r")
        assert before <= recorded.timestamp <= await store.now()

    @pytest.mark.proves("K-01", "I28")
    async def test_events_keep_the_time_they_have(self, store: Store) -> None:
        """A time given by the writer is kept to the microsecond."""
        moment = datetime(2021, 2, 3, 4, 5, 6, 789012, tzinfo=UTC)
        await begin(store, "r", event("r", timestamp=moment))
        assert (await store.history("r"))[0].timestamp == moment

    @pytest.mark.proves("I5", "I2")
    async def test_events_carry_the_token_they_were_written_under(self, store: Store) -> None:
        """The store writes the claim's token beside each event; what the caller says is ignored."""
        await begin(store, "r", event("r", token=99))
        first = await take(store, "r")
        await done(store, Commit(run_id="r", token=first.token, events=(event("r", token=98),)))
        await self.advance(store, 2 * TTL)
        second = await take(store, "r", owner="another")
        await done(store, Commit(run_id="r", token=second.token, events=events("r", 2)))
        tokens = [one.token for one in await store.history("r")]
        assert tokens == [0, first.token, second.token, second.token]

    @pytest.mark.proves("C-03")
    async def test_the_record_names_its_last_commit(self, store: Store) -> None:
        """`Run.commit_id` is the id of the last commit: by it an unknown outcome is settled."""
        await begin(store, "r")
        commit = Commit(run_id="r", events=events("r", 1))
        await done(store, commit)
        assert (await store.get("r")).commit_id == commit.id

    @pytest.mark.proves("D-02", "C-12")
    async def test_fields_kept_by_the_store_cannot_be_set(self, store: Store) -> None:
        """What a caller puts in the fields that the store keeps is ignored."""
        forged = Run(
            id="r",
            sequence=7,
            revision=8,
            token=9,
            owner="forger",
            claimed_until=datetime(2999, 1, 1, tzinfo=UTC),
            commit_id="forged",
            inbox=10,
            updated_at=datetime(2999, 1, 1, tzinfo=UTC),
            ended_at=datetime(2999, 1, 1, tzinfo=UTC),
        )
        commit = Commit(run_id="r", create=forged)
        await done(store, commit)
        record = await store.get("r")
        assert (record.sequence, record.revision, record.token) == (0, 1, 0)
        assert (record.owner, record.claimed_until, record.inbox) == (None, None, 0)
        assert (record.commit_id, record.ended_at) == (commit.id, None)
        assert record.updated_at <= await store.now()

    @pytest.mark.proves("D-02", "D-06")
    async def test_a_change_dates_the_record_and_leaves_its_creation(self, store: Store) -> None:
        """`updated_at` moves with each commit, `created_at` never does."""
        before = await store.now()
        await begin(store, "r")
        born = await store.get("r")
        assert before <= born.created_at <= born.updated_at <= await store.now()
        await self.advance(store, 10)
        await done(store, Commit(run_id="r", change=Change(current_step="a")))
        changed = await store.get("r")
        assert changed.created_at == born.created_at
        assert changed.updated_at - born.updated_at >= timedelta(seconds=10)
        await self.advance(store, 10)
        await done(store, Commit(run_id="r", events=events("r", 1)))
        assert (await store.get("r")).updated_at - changed.updated_at >= timedelta(seconds=10)

    @pytest.mark.proves("K-01")
    async def test_the_caller_of_a_commit_may_number_its_events(self, store: Store) -> None:
        """Explicit sequences that fit are kept; without `expected` the store numbers anyway."""
        own = tuple(event("r", sequence=n) for n in (1, 2))
        await done(store, Commit(run_id="r", expected=0, create=Run(id="r"), events=own))
        assert [(one.id, one.sequence) for one in await store.history("r")] == [
            (own[0].id, 1),
            (own[1].id, 2),
        ]

    @pytest.mark.proves("C-03")
    async def test_event_ids_are_unique_per_run_only(self, store: Store) -> None:
        """Two runs may each have an event with the same id."""
        await begin(store, "a", event("a", id="same"))
        await begin(store, "b", event("b", id="same"))
        assert [one.id for one in await store.history("b")] == ["same"]

    @pytest.mark.proves("I5", "C-10", "I11")
    async def test_hold_claims_the_run_that_a_commit_creates(self, store: Store) -> None:
        """A start may claim its run atomically with its creation."""
        held = Commit(
            run_id="r",
            create=Run(id="r", runnable_at=EPOCH),
            hold=ClaimOnCreate("starter", TTL),
            events=events("r", 1),
        )
        answer = await done(store, held)
        record = await store.get("r")
        assert answer.token == record.token > 0
        assert record.owner == "starter"
        assert [one.token for one in await store.history("r")] == [answer.token]
        assert await store.claim_runs("other", TTL, run_ids=["r"]) == []
        await done(store, Commit(run_id="r", token=answer.token, events=events("r", 1)))
        assert not isinstance(
            await outcome_of(store, Commit(run_id="r", events=events("r", 1))), type(answer)
        )
        await self.advance(store, 2 * TTL)
        assert (await take(store, "r", owner="other")).token > answer.token
