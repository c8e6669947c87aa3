"""Lifecycle: open, use, close; deadlines and cancellation; and what survives."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import pytest

from outlast.errors import StoreClosed, TimedOut, UnknownOutcome
from outlast.model import Change, Claim, Commit, Committed, Fact, Run, RunQuery, Snapshot
from outlast.model.times import EPOCH
from outlast.ports import Capability, Store
from outlast.ports.store_methods import StoreMethods
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import TTL, begin, done, events, signal, take

Call = Callable[[Store], Awaitable[object]]
CLAIM = Claim(owner="w", token=1, claimed_at=EPOCH, run_id="r")

CALLS: dict[str, tuple[Capability | None, Call]] = {
    "commit": (None, lambda store: store.commit([Commit(run_id="r", create=Run(id="r"))])),
    "find_one": (None, lambda store: store.find_one("r")),
    "history": (None, lambda store: store.history("r")),
    "claim_runs": (None, lambda store: store.claim_runs("w", TTL)),
    "renew": (None, lambda store: store.renew([CLAIM], TTL)),
    "release": (None, lambda store: store.release([CLAIM])),
    "append": (None, lambda store: store.append("r", events("r", 1))),
    "save": (None, lambda store: store.save(Run(id="r"))),
    "find": (Capability.FIND, lambda store: store.find(RunQuery())),
    "send": (Capability.INBOX, lambda store: store.send([signal("r")])),
    "inbox": (Capability.INBOX, lambda store: store.inbox("r")),
    "claim_task": (Capability.TASKS, lambda store: store.claim_task("r", "t", "w")),
    "find_available_tasks": (Capability.TASKS, lambda store: store.find_available_tasks()),
    "timers": (Capability.TIMERS, lambda store: store.timers("r")),
    "due_timers": (Capability.TIMERS, lambda store: store.due_timers()),
    "entries": (Capability.ENTRIES, lambda store: store.entries("r")),
    "activities": (Capability.ACTIVITIES, lambda store: store.activities("r")),
    "find_activity": (Capability.ACTIVITIES, lambda store: store.find_activity("a")),
    "find_snapshot": (Capability.SNAPSHOTS, lambda store: store.find_snapshot("r")),
    "drop_snapshot": (Capability.SNAPSHOTS, lambda store: store.drop_snapshot("r")),
    "snapshot_ids": (Capability.SNAPSHOTS, lambda store: store.snapshot_ids()),
    "save_snapshot": (
        Capability.SNAPSHOTS,
        lambda store: store.save_snapshot(Snapshot(run_id="r", sequence=0, data=b"")),
    ),
    "find_fact": (Capability.FACTS, lambda store: store.find_fact("0" * 64)),
    "put_fact": (Capability.FACTS, lambda store: store.put_fact(Fact.of(b""))),
    "drop_fact": (Capability.FACTS, lambda store: store.drop_fact("0" * 64)),
    "remember": (Capability.KEYS, lambda store: store.remember("s", "k", "v")),
    "recall": (Capability.KEYS, lambda store: store.recall("s", "k")),
    "delete": (Capability.DELETE, lambda store: store.delete("r")),
    "expire": (Capability.RETENTION, lambda store: store.expire(EPOCH)),
}


class Lifecycle(StoreContract):
    """A store as a thing that is opened, used and closed."""

    @pytest.mark.proves("R-01", "S-22")
    async def test_opening_an_open_store_changes_nothing(self, store: Store) -> None:
        """A second `open` keeps what is there."""
        await begin(store, "r", *events("r", 1))
        await store.open()
        assert await store.last_sequence("r") == 1

    @pytest.mark.proves("R-01")
    async def test_a_store_may_be_closed_twice(self, store: Store) -> None:
        """The second `close` is no error."""
        await store.close()
        await store.close()

    @pytest.mark.proves("R-01", "K-15")
    async def test_a_closed_store_says_so(self, store: Store) -> None:
        """Every call after `close` raises `StoreClosed`, and never looks like an empty store."""
        await begin(store, "r")
        await store.close()
        for need, call in CALLS.values():
            if need is None or need in store.capabilities:
                with pytest.raises(StoreClosed):
                    await call(store)

    @pytest.mark.proves("R-01", "C-20")
    async def test_a_closed_store_can_be_opened_again(self, store: Store) -> None:
        """Closing is not the end of the object."""
        await store.close()
        await store.open()
        await begin(store, "r")
        assert await store.exists("r")

    @pytest.mark.proves("M-10", "C-20")
    async def test_every_call_takes_a_timeout(self, store: Store) -> None:
        """Each method of the port, as this store has it, takes `timeout` by name; None by default."""
        without = []
        for name, _ in inspect.getmembers(StoreMethods, inspect.iscoroutinefunction):
            if name.startswith("_") or name in ("open", "close"):
                continue
            own = inspect.signature(getattr(type(store), name)).parameters.get("timeout")
            if own is None or own.kind is not own.KEYWORD_ONLY or own.default is not None:
                without.append(name)
        assert without == []

    @pytest.mark.proves("M-10", "C-20")
    async def test_a_generous_timeout_changes_nothing(self, store: Store) -> None:
        """A call that is in time answers as it does without a limit."""
        commit = Commit(run_id="r", create=Run(id="r"), events=events("r", 1))
        (outcome,) = await store.commit([commit], timeout=60)
        assert isinstance(outcome, Committed)
        assert await store.find_one("r", timeout=60) is not None
        assert len(await store.history("r", timeout=60)) == 1
        (claimed,) = await store.claim_runs("w", TTL, run_ids=["r"], timeout=60)
        assert await store.renew([claimed.claim], TTL, timeout=60) != [None]
        assert await store.release([claimed.claim], timeout=60) == [True]

    @pytest.mark.proves("M-10", "C-20", "I12")
    async def test_a_timeout_that_has_passed_does_all_or_nothing(self, store: Store) -> None:
        """The call is done whole, or nothing is written and the error says which of the two."""
        await begin(store, "r")
        commit = Commit(run_id="r", events=events("r", 3), change=Change(error="x"))
        try:
            await store.commit([commit], timeout=1e-9)
        except TimedOut:
            assert (await store.get("r")).commit_id != commit.id
        except UnknownOutcome:
            pass
        else:
            assert (await store.get("r")).commit_id == commit.id
        assert len(await store.history("r")) in (0, 3)
        await done(store, commit)
        assert len(await store.history("r")) == 3

    @pytest.mark.proves("M-10", "C-20", "C-03", "I12")
    @pytest.mark.parametrize("ticks", [0, 1, 2, 3, 5, 8])
    async def test_a_cancelled_commit_is_settled_by_its_id(self, store: Store, ticks: int) -> None:
        """Cancelled at any point it is whole or absent; made again, it has happened once."""
        await begin(store, "r")
        commit = Commit(run_id="r", events=events("r", 3), change=Change(error="x"))
        call = asyncio.ensure_future(store.commit([commit]))
        for _ in range(ticks):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        record = await store.get("r")
        happened = record.commit_id == commit.id
        assert (record.sequence, record.error) == ((3, "x") if happened else (0, None))
        answer = await done(store, commit)
        assert (answer.sequence, answer.revision) == (3, 2)
        assert len(await store.history("r")) == 3

    @pytest.mark.proves("M-10", "C-20", "S-22")
    async def test_a_cancelled_read_leaves_the_store_usable(self, store: Store) -> None:
        """Giving up on a call does no harm to the next one."""
        await begin(store, "r", *events("r", 2))
        for ticks in range(4):
            call = asyncio.ensure_future(store.history("r"))
            for _ in range(ticks):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
        assert len(await store.history("r")) == 2
        await take(store, "r")
