"""Bad input: a typed error that says how to mend the call, nothing written, and a store that goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import pytest

from outlast.errors import (
    InvalidCommit,
    InvalidId,
    InvalidValue,
    NotSerializable,
    Unsupported,
    UsageError,
)
from outlast.model import (
    Activity,
    Change,
    Claim,
    ClaimOnCreate,
    Commit,
    Entry,
    Fact,
    Run,
    Snapshot,
    Task,
    Timer,
)
from outlast.model.times import EPOCH
from outlast.ports import Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import TTL, begin, event, unchanged

Call = Callable[[Store], Awaitable[object]]
NAIVE = datetime(2031, 1, 1)  # noqa: DTZ001 — that is what is wrong with it
LONE = "half of a pair: \ud83d"


def _commit(commit: Commit) -> Call:
    return lambda store: store.commit([commit])


BAD_CALLS: dict[str, tuple[type[UsageError], Call]] = {
    "a record of another run": (
        InvalidCommit,
        _commit(Commit(run_id="n", create=Run(id="other"))),
    ),
    "an event of another run": (InvalidCommit, _commit(Commit(run_id="r", events=(event("s"),)))),
    "an event without an id": (
        InvalidCommit,
        _commit(Commit(run_id="r", events=(event("r", id=""),))),
    ),
    "an event id twice": (
        InvalidCommit,
        _commit(Commit(run_id="r", events=(event("r", id="e"), event("r", id="e")))),
    ),
    "sequences with a gap": (
        InvalidCommit,
        _commit(Commit(run_id="r", expected=0, events=(event("r", sequence=2),))),
    ),
    "sequences that do not rise": (
        InvalidCommit,
        _commit(
            Commit(run_id="r", expected=0, events=(event("r", sequence=1), event("r", sequence=1)))
        ),
    ),
    "a negative expectation": (InvalidValue, _commit(Commit(run_id="r", expected=-1))),
    "a hold without a creation": (
        InvalidCommit,
        _commit(Commit(run_id="r", hold=ClaimOnCreate("w", TTL))),
    ),
    "a hold without an owner": (
        InvalidId,
        _commit(Commit(run_id="n", create=Run(id="n"), hold=ClaimOnCreate("", TTL))),
    ),
    "a hold of no time": (
        InvalidValue,
        _commit(Commit(run_id="n", create=Run(id="n"), hold=ClaimOnCreate("w", 0))),
    ),
    "a hold for ever": (
        InvalidValue,
        _commit(Commit(run_id="n", create=Run(id="n"), hold=ClaimOnCreate("w", 10**9))),
    ),
    "an entry of another run": (
        InvalidCommit,
        _commit(Commit(run_id="r", entries=(Entry(run_id="s", step_id="s", action="a"),))),
    ),
    "an activity of another run": (
        InvalidCommit,
        _commit(Commit(run_id="r", activities=(Activity(id="a", run_id="s"),))),
    ),
    "an activity without an id": (
        InvalidId,
        _commit(Commit(run_id="r", activities=(Activity(id="", run_id="r"),))),
    ),
    "a snapshot of another run": (
        InvalidCommit,
        _commit(Commit(run_id="r", snapshot=Snapshot(run_id="s", sequence=0, data=b""))),
    ),
    "a fact that is a lie": (
        InvalidCommit,
        _commit(Commit(run_id="r", facts=(Fact("0" * 64, b"data"),))),
    ),
    "a task of another run finished": (
        InvalidCommit,
        _commit(
            Commit(
                run_id="r",
                finishes=(Claim(owner="w", token=1, claimed_at=EPOCH, run_id="s", task_id="t"),),
            )
        ),
    ),
    "a commit without an id": (InvalidId, _commit(Commit(run_id="r", id=""))),
    "a run due at a time without a zone": (
        InvalidValue,
        _commit(Commit(run_id="n", create=Run(id="n", runnable_at=NAIVE))),
    ),
    "a change to a time without a zone": (
        InvalidValue,
        _commit(Commit(run_id="r", events=(event("r"),), change=Change(runnable_at=NAIVE))),
    ),
    "an event at a time without a zone": (
        InvalidValue,
        _commit(Commit(run_id="r", events=(event("r", timestamp=NAIVE),))),
    ),
    "an entry at a time without a zone": (
        InvalidValue,
        _commit(
            Commit(
                run_id="r",
                entries=(Entry(run_id="r", step_id="s", action="a", timestamp=NAIVE),),
            )
        ),
    ),
    "a timer at a time without a zone": (
        InvalidValue,
        _commit(Commit(run_id="r", timers=(Timer(run_id="r", id="t", fire_at=NAIVE),))),
    ),
    "a task at a time without a zone": (
        InvalidValue,
        _commit(Commit(run_id="r", tasks=(Task(id="t", run_id="r", run_at=NAIVE),))),
    ),
    "timers due at a time without a zone": (
        InvalidValue,
        lambda store: store.due_timers(now=NAIVE),
    ),
    "runs that ended before a time without a zone": (
        InvalidValue,
        lambda store: store.expire(NAIVE),
    ),
    "an error that is no text": (
        NotSerializable,
        _commit(Commit(run_id="r", events=(event("r"),), change=Change(error=LONE))),
    ),
    "a new error that is no text": (
        NotSerializable,
        _commit(Commit(run_id="n", create=Run(id="n", error=LONE))),
    ),
    "a step name that is no text": (
        NotSerializable,
        _commit(Commit(run_id="r", events=(event("r", step_name=LONE),))),
    ),
    "metadata that are no text": (
        NotSerializable,
        _commit(Commit(run_id="r", events=(event("r", metadata={"k": LONE}),))),
    ),
    "an attribute that is no text": (
        NotSerializable,
        _commit(Commit(run_id="r", change=Change(attributes={"k": LONE}))),
    ),
    "an attribute that is no number": (
        NotSerializable,
        _commit(Commit(run_id="r", change=Change(attributes={"k": float("nan")}))),
    ),
    "an endless attribute": (
        NotSerializable,
        _commit(Commit(run_id="n", create=Run(id="n", attributes={"k": float("inf")}))),
    ),
    "an attribute that is nothing": (
        InvalidValue,
        _commit(Commit(run_id="n", create=Run(id="n", attributes={"k": None}))),  # type: ignore[dict-item]
    ),
    "an attribute that is a list": (
        InvalidValue,
        _commit(Commit(run_id="r", change=Change(attributes={"k": [1]}))),  # type: ignore[dict-item]
    ),
    "an attribute without a name": (
        InvalidValue,
        _commit(Commit(run_id="n", create=Run(id="n", attributes={7: "x"}))),  # type: ignore[dict-item]
    ),
    "an id that is no text": (InvalidId, lambda store: store.find_one(7)),  # type: ignore[arg-type]
    "no id": (InvalidId, lambda store: store.history(None)),  # type: ignore[arg-type]
    "a position before the beginning": (
        InvalidValue,
        lambda store: store.history("r", after=-1),
    ),
    "an owner that is no text": (
        InvalidId,
        lambda store: store.claim_runs(None, TTL),  # type: ignore[arg-type]
    ),
}


class BadInput(StoreContract):
    """Whatever is wrong with a call, the store is not."""

    @pytest.mark.proves("K-15", "K-13", "I12")
    @pytest.mark.parametrize(("error", "call"), BAD_CALLS.values(), ids=BAD_CALLS)
    async def test_a_bad_call_is_refused_and_leaves_no_trace(
        self, store: Store, error: type[UsageError], call: Call
    ) -> None:
        """A typed error, the same data before and after, and the next good call succeeds."""
        await begin(store, "r", runnable_at=EPOCH)
        async with unchanged(store, "r", "s", "n", "other"):
            # A store that does not have the part at all may say so first.
            with pytest.raises((error, Unsupported)) as caught:
                await call(store)
        assert str(caught.value)
        assert await store.append("r", [event("r")]) == 1

    @pytest.mark.proves("K-15", "I12")
    async def test_a_bad_part_spoils_its_whole_commit(self, store: Store) -> None:
        """Good events beside a bad one are not written either, nor is the change."""
        await begin(store, "r")
        commit = Commit(
            run_id="r",
            events=(event("r"), event("r"), event("other")),
            change=Change(error="never written"),
        )
        async with unchanged(store, "r"):
            with pytest.raises(InvalidCommit):
                await store.commit([commit])

    @pytest.mark.proves("K-15")
    async def test_refusals_are_values_and_bad_input_is_raised(self, store: Store) -> None:
        """What depends on the data is an outcome; what is wrong in itself is an exception."""
        outcomes = await store.commit([Commit(run_id="unknown")])
        assert len(outcomes) == 1
        with pytest.raises(UsageError):
            await store.commit([Commit(run_id="")])
