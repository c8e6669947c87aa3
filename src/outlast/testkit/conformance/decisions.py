"""Decisions: every reason to refuse a commit, in the order in which they are looked at.

As `outlast.model.commit_rules` has it: already here, there, same life, still open, the owner, in
turn, new, still held. A refusal is a value, says what the writer needs to know, and leaves no
trace.
"""

from __future__ import annotations

import msgspec
import pytest

from outlast.errors import Conflict, DuplicateEvent, Fenced, NotFound, RunClosed, RunExists
from outlast.model import Change, Commit, Creation, Run, Status
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    done,
    event,
    events,
    finish,
    outcome_of,
    refused,
    take,
)


class Decisions(StoreContract):
    """Who may write, and when."""

    # -- already here? ------------------------------------------------------------------------

    @pytest.mark.proves("C-03", "C-20", "I7")
    async def test_a_commit_made_again_is_answered_and_not_applied(self, store: Store) -> None:
        """The same commit sent twice is written once; the second answer says `again`."""
        await begin(store, "r", event("r"))
        commit = Commit(
            run_id="r", expected=1, revision=1, events=events("r", 2), change=Change(error="x")
        )
        first = await done(store, commit)
        second = await done(store, commit)
        assert second.again
        assert not first.again
        assert (second.uid, second.sequence, second.revision, second.token) == (
            first.uid,
            first.sequence,
            first.revision,
            first.token,
        )
        assert len(await store.history("r")) == 3
        assert (await store.get("r")).revision == 2

    @pytest.mark.proves("C-03", "I11")
    async def test_a_creation_made_again_is_not_a_second_run(self, store: Store) -> None:
        """The retry of a creation is answered `again`, not `RunExists`."""
        commit = Commit(run_id="r", create=Run(id="r"), events=events("r", 1))
        first = await done(store, commit)
        second = await done(store, commit)
        assert (second.again, second.uid) == (True, first.uid)
        assert (await store.get("r")).revision == 1

    @pytest.mark.proves("C-03", "I18")
    async def test_the_commit_that_ended_a_run_made_again(self, store: Store) -> None:
        """The retry of the last commit of a run is answered `again`, not `RunClosed`."""
        await begin(store, "r")
        last = Commit(run_id="r", events=events("r", 1), change=Change(status=Status.FAILED))
        await done(store, last)
        assert (await done(store, last)).again
        assert len(await store.history("r")) == 1

    @pytest.mark.proves("C-03", "C-28")
    async def test_a_commit_made_again_after_a_takeover(self, store: Store) -> None:
        """A writer whose answer was lost learns that it had written, although it is fenced now."""
        await begin(store, "r")
        claim = await take(store, "r")
        commit = Commit(run_id="r", token=claim.token, events=events("r", 1))
        await done(store, commit)
        await self.advance(store, 2 * TTL)
        await take(store, "r", owner="other")
        assert (await done(store, commit)).again

    @pytest.mark.proves("C-03", "K-09", "I7")
    async def test_an_older_commit_made_again_is_a_duplicate(self, store: Store) -> None:
        """A retry that comes after another commit adds nothing: its events are recorded already."""
        await begin(store, "r")
        late = Commit(run_id="r", events=events("r", 2))
        await done(store, late)
        await done(store, Commit(run_id="r", events=events("r", 1)))
        assert (await refused(store, late, DuplicateEvent)).sequence == 1

    # -- there? -------------------------------------------------------------------------------

    @pytest.mark.proves("M-02", "R-21", "C-06")
    async def test_a_commit_to_an_unknown_run_is_not_found(self, store: Store) -> None:
        """Without a record to create there must be a run; the refusal names what is missing."""
        refusal = await refused(store, Commit(run_id="r", events=events("r", 1)), NotFound)
        assert (refusal.kind, refusal.id) == ("run", "r")
        assert not await store.exists("r")

    @pytest.mark.proves("I11")
    async def test_a_new_run_with_an_id_that_is_taken_is_refused(self, store: Store) -> None:
        """An id belongs to one run; the refusal names the life that has it."""
        first = await begin(store, "r", event("r"))
        second = Commit(run_id="r", create=Run(id="r"), events=events("r", 1))
        assert (await refused(store, second, RunExists)).uid == first.uid

    @pytest.mark.proves("I11", "I18")
    async def test_the_id_of_a_run_that_has_ended_is_still_taken(self, store: Store) -> None:
        """Ending a run does not free its id."""
        first = await begin(store, "r")
        await finish(store, "r")
        again = Commit(run_id="r", create=Run(id="r"))
        assert (await refused(store, again, RunExists)).uid == first.uid

    # -- same life? ---------------------------------------------------------------------------

    @pytest.mark.proves("C-10", "I25")
    async def test_a_commit_for_another_life_is_fenced(self, store: Store) -> None:
        """A commit that names a life reaches that life only."""
        first = await begin(store, "r")
        await refused(store, Commit(run_id="r", uid="gone", events=events("r", 1)), Fenced)
        await done(store, Commit(run_id="r", uid=first.uid, events=events("r", 1)))
        late = Commit(run_id="s", uid="gone", create=Run(id="s"), creation=Creation.UPSERT)
        await refused(store, late, Fenced)

    # -- the owner? ---------------------------------------------------------------------------

    @pytest.mark.proves("I5")
    async def test_a_token_for_a_run_that_nobody_claimed_is_fenced(self, store: Store) -> None:
        """A made-up token opens nothing."""
        await begin(store, "r")
        await refused(store, Commit(run_id="r", token=7, events=events("r", 1)), Fenced)

    @pytest.mark.proves("I5", "I4")
    async def test_a_stale_token_does_not_bring_a_run_back(self, store: Store) -> None:
        """An upsert under a claim, for a run that is not there, is refused: no ghost is born."""
        ghost = Commit(
            run_id="r",
            token=7,
            create=Run(id="r"),
            creation=Creation.UPSERT,
            events=events("r", 1),
        )
        await refused(store, ghost, Fenced)
        assert not await store.exists("r")

    # -- in turn? -----------------------------------------------------------------------------

    @pytest.mark.proves("K-08", "C-02", "I1")
    @pytest.mark.parametrize("expected", [0, 1, 3, 100])
    async def test_another_expected_sequence_is_a_conflict(
        self, store: Store, expected: int
    ) -> None:
        """A conflict names the expected and the actual sequence."""
        await begin(store, "r", *events("r", 2))
        wrong = Commit(run_id="r", expected=expected, events=events("r", 1))
        refusal = await refused(store, wrong, Conflict)
        assert (refusal.run_id, refusal.expected, refusal.actual) == ("r", expected, 2)
        assert refusal.what == "sequence"

    @pytest.mark.proves("K-08", "I1", "I12")
    async def test_a_run_cannot_begin_in_the_middle(self, store: Store) -> None:
        """A commit that expects events of a run that is not there is a conflict with 0."""
        gap = Commit(run_id="r", expected=5, create=Run(id="r"), events=events("r", 1))
        refusal = await refused(store, gap, Conflict)
        assert (refusal.expected, refusal.actual) == (5, 0)
        upsert = msgspec.structs.replace(gap, creation=Creation.UPSERT)
        assert (await refused(store, upsert, Conflict)).actual == 0
        unread = msgspec.structs.replace(upsert, expected=None, revision=2)
        assert (await refused(store, unread, Conflict)).what == "revision"
        assert not await store.exists("r")

    @pytest.mark.proves("C-12")
    async def test_another_revision_is_a_conflict(self, store: Store) -> None:
        """Compare-and-set on the record: a writer that read an older one gets a conflict."""
        await begin(store, "r")
        await done(store, Commit(run_id="r", change=Change(current_step="a")))
        stale = Commit(run_id="r", revision=1, change=Change(current_step="b"))
        refusal = await refused(store, stale, Conflict)
        assert (refusal.expected, refusal.actual, refusal.what) == (1, 2, "revision")

    # -- new? ---------------------------------------------------------------------------------

    @pytest.mark.proves("K-09", "C-03", "I7")
    async def test_an_event_id_is_recorded_once(self, store: Store) -> None:
        """An event id that the run has is refused with its sequence, with all that came along."""
        await begin(store, "r", event("r"), event("r", id="charge"))
        again = Commit(
            run_id="r",
            events=(event("r"), event("r", id="charge"), event("r")),
            change=Change(error="never written"),
        )
        refusal = await refused(store, again, DuplicateEvent)
        assert (refusal.run_id, refusal.event_id, refusal.sequence) == ("r", "charge", 2)

    @needs(Capability.DELETE)
    @pytest.mark.proves("K-09", "I25")
    async def test_an_event_id_of_an_old_life_is_new_again(self, store: Store) -> None:
        """A run that was replaced has no events, so their ids may be used."""
        await begin(store, "r", event("r", id="charge"))
        new = Commit(
            run_id="r",
            create=Run(id="r"),
            creation=Creation.REPLACE,
            events=(event("r", id="charge"),),
        )
        assert (await done(store, new)).sequence == 1

    # -- which reason comes first -------------------------------------------------------------

    @pytest.mark.proves("C-28", "I18")
    async def test_an_ended_run_is_closed_before_it_is_fenced(self, store: Store) -> None:
        """A stale owner of an ended run gets `RunClosed`."""
        await begin(store, "r")
        await take(store, "r")
        await done(store, Commit(run_id="r", force=True, change=Change(status=Status.CANCELLED)))
        late = Commit(run_id="r", events=events("r", 1))
        assert (await refused(store, late, RunClosed)).status == "cancelled"

    @pytest.mark.proves("C-28", "I5")
    async def test_a_stale_owner_is_fenced_before_it_is_out_of_turn(self, store: Store) -> None:
        """A superseded owner must stop, not read again: it gets `Fenced`, not `Conflict`."""
        await begin(store, "r")
        claim = await take(store, "r")
        await self.advance(store, 2 * TTL)
        await take(store, "r", owner="other")
        late = Commit(run_id="r", token=claim.token, expected=9, events=events("r", 1))
        await refused(store, late, Fenced)

    @pytest.mark.proves("K-08", "K-09")
    async def test_a_writer_behind_gets_a_conflict_before_a_duplicate(self, store: Store) -> None:
        """With `expected`, the position is judged before the ids of the events."""
        await begin(store, "r", event("r", id="charge"))
        late = Commit(run_id="r", expected=0, events=(event("r", id="charge"),))
        assert isinstance(await outcome_of(store, late), Conflict)
