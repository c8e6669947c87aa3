"""Replacement: a commit that ends one life of a run and begins the next, in one step."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from outlast.errors import RunExists
from outlast.model import (
    Commit,
    Creation,
    Run,
    Status,
)
from outlast.model.times import NOW
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.run_contents import furnish, seen_of
from outlast.testkit.conformance.scenario import (
    begin,
    done,
    events,
    finish,
    refused,
    take,
)


class Replacement(StoreContract, needs=(Capability.DELETE,)):
    """`Creation.REPLACE`."""

    @pytest.mark.proves("I25", "I12")
    async def test_nothing_is_left_of_a_replaced_life(self, store: Store) -> None:
        """A run that is replaced is as new as one that never was there."""
        await _replace(store)
        fresh = await seen_of(store, "r")
        await store.delete("r")
        await furnish(store, "r")
        if Capability.CHILDREN in store.capabilities:
            await finish(store, "r~child")
        await _replace(store)
        assert _timeless(await seen_of(store, "r")) == _timeless(fresh)

    @pytest.mark.proves("I25", "K-08")
    async def test_a_new_life_has_its_own_uid_and_history(self, store: Store) -> None:
        """Replace begins at sequence 1 and revision 1 with the events it brings."""
        first = await begin(store, "r", *events("r", 5))
        run = Run(id="r", input=Raw(b"2"))
        new = Commit(run_id="r", create=run, creation=Creation.REPLACE, events=events("r", 2))
        answer = await done(store, new)
        assert (answer.uid, answer.sequence, answer.revision) == (run.uid, 2, 1)
        assert answer.uid != first.uid
        assert len(await store.history("r")) == 2
        assert (await store.get("r")).input == Raw(b"2")

    @pytest.mark.proves("I18", "I25")
    async def test_an_ended_run_can_be_replaced(self, store: Store) -> None:
        """Replacing is the one way to use the id of an ended run again without deleting it."""
        await begin(store, "r", *events("r", 1))
        await finish(store, "r", Status.FAILED)
        own = events("r", 2)
        await done(
            store, Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE, events=own)
        )
        record = await store.get("r")
        assert (record.status, record.sequence, record.ended_at) == (Status.PENDING, 2, None)

    @pytest.mark.proves("C-03", "I25")
    async def test_replacing_made_again_happens_once(self, store: Store) -> None:
        """The retry of a replacement does not kill the new life."""
        await begin(store, "r")
        new = Commit(
            run_id="r", create=Run(id="r"), creation=Creation.REPLACE, events=events("r", 1)
        )
        first = await done(store, new)
        second = await done(store, new)
        assert (second.again, second.uid, second.sequence) == (True, first.uid, 1)

    @pytest.mark.proves("C-03", "C-20", "I3")
    async def test_replacing_made_again_late_harms_nobody(self, store: Store) -> None:
        """A life begins once: the retry of a replacement, after others have written to the life
        that it started, learns that this life exists, and does not start it again."""
        await begin(store, "r")
        run = Run(id="r", runnable_at=NOW)
        new = Commit(run_id="r", create=run, creation=Creation.REPLACE, force=True)
        await done(store, new)
        claim = await take(store, "r")
        await done(store, Commit(run_id="r", token=claim.token, events=events("r", 1)))
        refusal = await refused(store, new, RunExists)
        assert refusal.uid == run.uid

    @pytest.mark.proves("I25")
    async def test_replacing_a_run_that_is_not_there_creates_it(self, store: Store) -> None:
        """There is nothing to delete, and that is fine."""
        new = Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE)
        assert (await done(store, new)).revision == 1


async def _replace(store: Store) -> None:
    new = Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE, force=True)
    await done(store, new)


def _timeless(seen: dict[str, object]) -> dict[str, object]:
    """What is seen, without what differs between any two lives of a run."""
    plain = dict(seen)
    for name, value in plain.items():
        if isinstance(value, Run):
            plain[name] = _ageless(value)
        elif name == "runs" and isinstance(value, list):
            plain[name] = [_ageless(run) for run in value]
    return plain


def _ageless(run: Run) -> Run:
    return msgspec.structs.replace(
        run, uid="", token=0, commit_id="", created_at=NOW, updated_at=NOW
    )
