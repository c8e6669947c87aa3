"""Runs: the typed record of a run, written whole or changed in part, and read back exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from msgspec import Raw

from outlast.errors import Conflict, Fenced, NotFound
from outlast.model import Change, Commit, Run, Status
from outlast.model.run import CHANGEABLE
from outlast.ports import Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import begin, change, done, event, events, take, unchanged

FAR = datetime(2199, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)

FIELDS: list[tuple[str, object]] = [
    ("workflow", "order/ship ✓"),
    ("version", 3),
    ("version", "3"),
    ("definition", "sha256-abc"),
    ("wait_kind", "approval"),
    ("input", Raw(b'{"z": 1, "a": [true, null]}')),
    ("ctx", {"total": Raw(b"1.50"), "ключ": Raw(b'"\\u0000"'), "": Raw(b"{}")}),
    ("current_step", "charge#2"),
    ("result", Raw(b"[ ]")),
    ("error", "ValueError: NUL \x00, quote ' \" and \N{COLLISION SYMBOL}\nsecond line"),
    ("error", ""),
    ("halt_data", Raw(b'{"question":"pay?"}')),
    ("recover_to", "charge#1"),
    ("rejected_by", "0a1b2c 3d4e5f"),
    ("attributes", {"tenant": "acme", "amount": 2**53, "rate": 0.1, "vip": True, "n": 1}),
    ("queue", "gpu"),
    ("priority", -5),
    ("runnable_at", FAR),
    ("runnable_at", datetime.max.replace(tzinfo=UTC)),
]
"""A value for each field that a caller decides."""

NULLABLE = [
    "wait_kind",
    "input",
    "current_step",
    "result",
    "error",
    "halt_data",
    "recover_to",
    "rejected_by",
    "runnable_at",
]


def _id(case: object) -> str:
    return case if isinstance(case, str) and case in CHANGEABLE else ""


class Records(StoreContract):
    """One run, by its id."""

    # -- read ---------------------------------------------------------------------------------

    @pytest.mark.proves("D-07", "M-02", "R-03", "R-10", "R-21", "C-06")
    async def test_a_run_that_is_not_there(self, store: Store) -> None:
        """`find_one` gives None, `exists` False, `get` raises `NotFound` with what was asked."""
        assert await store.find_one("r") is None
        assert not await store.exists("r")
        with pytest.raises(NotFound) as caught:
            await store.get("r")
        assert (caught.value.kind, caught.value.id) == ("run", "r")

    @pytest.mark.proves("R-10", "R-03")
    async def test_a_run_exists_however_it_began(self, store: Store) -> None:
        """A run that was created, saved, or only appended to exists."""
        await begin(store, "created")
        await store.save(Run(id="saved"))
        await store.append("appended", [event("appended")])
        assert all([await store.exists(id) for id in ("created", "saved", "appended")])

    @pytest.mark.proves("K-11", "M-02")
    async def test_a_record_is_a_private_copy(self, store: Store) -> None:
        """Whatever a caller does to what it gave or got, the store keeps what was committed."""
        ctx, attributes = {"a": Raw(b"1")}, {"tenant": "acme"}
        await begin(store, "r", ctx=ctx, attributes=attributes)
        ctx["a"] = Raw(b"2")
        attributes.clear()
        record = await store.get("r")
        record.ctx["b"] = Raw(b"3")
        record.attributes["tenant"] = "evil"
        kept = await store.get("r")
        assert (kept.ctx, kept.attributes) == ({"a": Raw(b"1")}, {"tenant": "acme"})

    @pytest.mark.proves("K-11", "M-02")
    async def test_a_change_is_a_private_copy(self, store: Store) -> None:
        """A map that was part of a change can be altered afterwards without effect."""
        await begin(store, "r")
        ctx = {"a": Raw(b"1")}
        await done(store, Commit(run_id="r", change=Change(ctx=ctx)))
        ctx["a"] = Raw(b"2")
        assert (await store.get("r")).ctx == {"a": Raw(b"1")}

    # -- every field --------------------------------------------------------------------------

    @pytest.mark.proves("D-02", "D-36", "M-45", "C-14", "I28")
    @pytest.mark.parametrize(("field", "value"), FIELDS, ids=_id)
    async def test_a_field_comes_back_as_it_was_created(
        self, store: Store, field: str, value: object
    ) -> None:
        """A field set at creation is read back equal and of the same type."""
        await begin(store, "r", **{field: value})
        assert _exactly(getattr(await store.get("r"), field), value)

    @pytest.mark.proves("D-02", "D-36", "M-01", "C-14", "I28")
    @pytest.mark.parametrize(("field", "value"), FIELDS, ids=_id)
    async def test_a_field_comes_back_as_it_was_changed(
        self, store: Store, field: str, value: object
    ) -> None:
        """A change sets the field it names and no other."""
        await begin(store, "r", ctx={"kept": Raw(b"1")}, current_step="kept", error="kept")
        before = await store.get("r")
        await done(store, Commit(run_id="r", change=change(**{field: value})))
        after = await store.get("r")
        assert _exactly(getattr(after, field), value)
        others = [name for name in CHANGEABLE if name != field]
        assert [getattr(after, n) for n in others] == [getattr(before, n) for n in others]

    @pytest.mark.proves("D-02", "D-36")
    @pytest.mark.parametrize("field", NULLABLE)
    async def test_a_field_can_be_cleared(self, store: Store, field: str) -> None:
        """None is a value: it clears the field, while a field left out stays."""
        await begin(store, "r", **{field: dict(FIELDS)[field]})
        await done(store, Commit(run_id="r", change=change(**{field: None})))
        assert getattr(await store.get("r"), field) is None

    @pytest.mark.proves("D-01", "D-36", "D-39", "C-04", "M-45")
    @pytest.mark.parametrize("status", Status)
    async def test_every_status_comes_back_typed(self, store: Store, status: Status) -> None:
        """A status is read as the enum it was, not as text."""
        await begin(store, "r")
        await done(store, Commit(run_id="r", change=Change(status=status)))
        assert (await store.get("r")).status is status

    @pytest.mark.proves("D-02", "M-45")
    async def test_a_record_with_nothing_but_an_id(self, store: Store) -> None:
        """What was left out has its default; empty maps are empty maps."""
        await done(store, Commit(run_id="r", create=Run(id="r")))
        record = await store.get("r")
        assert (record.workflow, record.version, record.definition) == ("", "", "")
        assert (record.status, record.ctx, record.attributes) == (Status.PENDING, {}, {})
        assert (record.input, record.result, record.error, record.parent) == (None,) * 4
        assert (record.queue, record.priority, record.runnable_at) == ("default", 0, None)

    @pytest.mark.proves("D-02", "I29")
    async def test_a_time_is_an_instant(self, store: Store) -> None:
        """A time comes back as the same instant, aware, whatever zone it was given in."""
        elsewhere = timezone(timedelta(hours=-7))
        offset = datetime(2190, 6, 1, 12, tzinfo=UTC).astimezone(elsewhere)
        await begin(store, "r", runnable_at=offset)
        record = await store.get("r")
        assert record.runnable_at == offset
        for moment in (record.runnable_at, record.created_at, record.updated_at):
            assert moment is not None
            assert moment.utcoffset() is not None

    @pytest.mark.proves("D-03", "D-41")
    async def test_ctx_holds_nothing_but_what_was_published(self, store: Store) -> None:
        """Status, halt and error have fields of their own: no key of ours appears in `ctx`."""
        await begin(store, "r", ctx={"mine": Raw(b"1")})
        for step in (
            Change(status=Status.HALTED, halt_data=Raw(b"{}"), recover_to="a"),
            Change(status=Status.FAILED, error="no", result=Raw(b"0")),
        ):
            await done(store, Commit(run_id="r", change=step, events=events("r", 1)))
            assert (await store.get("r")).ctx == {"mine": Raw(b"1")}

    @pytest.mark.proves("D-40", "S-16")
    async def test_a_stored_run_knows_where_to_resume(self, store: Store) -> None:
        """`recover_to` is where a resume starts, else `current_step`."""
        await begin(store, "r", current_step="pay")
        assert (await store.get("r")).resume_point == "pay"
        await done(store, Commit(run_id="r", change=Change(recover_to="book")))
        assert (await store.get("r")).resume_point == "book"

    @pytest.mark.proves("I13")
    async def test_the_record_agrees_with_the_history(self, store: Store) -> None:
        """The record's sequence is the number of events, after every commit."""
        await begin(store, "r", *events("r", 2))
        for size in (0, 1, 4):
            await done(store, Commit(run_id="r", events=events("r", size)))
            assert (await store.get("r")).sequence == len(await store.history("r"))

    # -- save ---------------------------------------------------------------------------------

    @pytest.mark.proves("M-01", "D-06", "R-02")
    async def test_save_creates_a_run_and_returns_it(self, store: Store) -> None:
        """The first `save` begins the run; what comes back is the record as stored."""
        run = Run(id="r", workflow="order", status=Status.RUNNING, input=Raw(b"1"))
        saved = await store.save(run)
        assert saved == await store.get("r")
        assert (saved.uid, saved.status, saved.input) == (run.uid, Status.RUNNING, Raw(b"1"))

    @pytest.mark.proves("M-01", "D-06", "C-12")
    async def test_save_overwrites_what_a_caller_decides(self, store: Store) -> None:
        """A second `save` replaces every field of the record and keeps its life and its history."""
        first = await store.save(Run(id="r", workflow="a", error="x", ctx={"a": Raw(b"1")}))
        await store.append("r", events("r", 2))
        again = await store.save(Run(id="r", workflow="b", status=Status.HALTED))
        assert (again.workflow, again.status, again.error, again.ctx) == (
            "b",
            Status.HALTED,
            None,
            {},
        )
        assert (again.uid, again.created_at, again.sequence) == (first.uid, first.created_at, 2)
        assert len(await store.history("r")) == 2

    @pytest.mark.proves("D-06", "C-12")
    async def test_a_record_that_was_read_can_be_saved_back(self, store: Store) -> None:
        """Read, change, save with the revision that was read."""
        await store.save(Run(id="r", workflow="order", attributes={"n": 1}))
        read = await store.get("r")
        mended = msgspec.structs.replace(read, current_step="pay", status=Status.RUNNING)
        saved = await store.save(mended, revision=read.revision)
        assert (saved.current_step, saved.attributes) == ("pay", {"n": 1})
        assert saved.revision == read.revision + 1

    @pytest.mark.proves("C-12")
    async def test_save_with_an_old_revision_is_a_conflict(self, store: Store) -> None:
        """Compare-and-set: of two writers that read the same record, one gets a conflict."""
        read = await store.save(Run(id="r"))
        await store.save(read, revision=read.revision)
        async with unchanged(store, "r"):
            with pytest.raises(Conflict) as caught:
                await store.save(read, revision=read.revision)
        assert (caught.value.expected, caught.value.actual) == (1, 2)

    @pytest.mark.proves("C-12")
    async def test_save_without_a_revision_is_last_writer_wins(self, store: Store) -> None:
        """Without compare-and-set the later record stands."""
        read = await store.save(Run(id="r"))
        await store.save(msgspec.structs.replace(read, error="first"))
        last = await store.save(msgspec.structs.replace(read, error="last"))
        assert last.error == "last"

    @pytest.mark.proves("I5", "C-12")
    async def test_a_claimed_run_is_saved_by_its_owner_only(self, store: Store) -> None:
        """`save` is a commit like any other: it needs the token once the run was claimed."""
        await begin(store, "r")
        claim = await take(store, "r")
        async with unchanged(store, "r"):
            with pytest.raises(Fenced):
                await store.save(Run(id="r", error="intruder"))
        assert (await store.save(Run(id="r", error="mine"), token=claim.token)).error == "mine"


def _exactly(found: object, value: object) -> bool:
    """Equal, and of equal types all the way down: True is not 1."""
    if isinstance(found, dict) and isinstance(value, dict):
        return found.keys() == value.keys() and all(_exactly(found[k], value[k]) for k in value)
    return type(found) is type(value) and found == value
