"""What is stored comes back to the byte, and what cannot be is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from outlast.errors import InvalidValue
from outlast.model import Change, Commit, Event, Run, RunQuery, Snapshot
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.rows import event_rows, pack_ctx, tag, to_events, unpack_ctx
from tests.stores.sqlite.probes import event

text = st.text(st.characters(exclude_categories=["Cs"]))
moments = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)).map(  # noqa: DTZ001
    lambda moment: moment.replace(tzinfo=UTC)
)


@given(
    type=text,
    data=st.binary(),
    output=st.none() | st.binary(),
    step_name=text,
    metadata=st.dictionaries(text, text),
    timestamp=moments,
    version=st.integers(-(2**63), 2**63 - 1),
)
@pytest.mark.proves("I28", "K-14")
def test_events_survive_their_rows(
    type: str,
    data: bytes,
    output: bytes | None,
    step_name: str,
    metadata: dict[str, str],
    timestamp: datetime,
    version: int,
) -> None:
    """NUL, emoji, bytes that are no JSON, the ends of time: all come back as they were."""
    before = Event(
        type=type,
        run_id="a",
        data=Raw(data),
        output=None if output is None else Raw(output),
        step_name=step_name,
        metadata=metadata,
        timestamp=timestamp,
        version=version,
    )
    rows = event_rows([before], key=1, after=4, token=7, now=0)
    (after,) = to_events("a", [row[1:] for row in rows])
    assert (after.sequence, after.token) == (5, 7)
    assert bytes(after.data) == data
    assert after.output is None if output is None else bytes(after.output or b"") == output
    for field in ("id", "type", "step_name", "metadata", "version"):
        assert getattr(after, field) == getattr(before, field)
    assert after.timestamp == timestamp or timestamp == datetime(1970, 1, 1, tzinfo=UTC)


@given(st.dictionaries(text, st.binary()))
@pytest.mark.proves("I28")
def test_published_values_survive(ctx: dict[str, bytes]) -> None:
    """What a workflow has published is kept to the byte, spaces and all."""
    packed = pack_ctx({name: Raw(value) for name, value in ctx.items()})
    assert {name: bytes(value) for name, value in unpack_ctx(packed).items()} == ctx


@given(*[text | st.integers() | st.floats(allow_nan=False) | st.booleans()] * 2)
def test_attributes_are_told_apart(left: str | float, right: str | float) -> None:
    """Two attributes are filed under the same text exactly if a filter takes them for the same."""
    same = type(left) is type(right) and left == right
    assert (tag(left) == tag(right)) is same


@pytest.mark.proves("I28")
async def test_large_and_empty_payloads(store: SqliteStore) -> None:
    """A payload of a megabyte with every byte in it, and one of nothing."""
    large = Raw(bytes(range(256)) * 4096)
    run = Run(id="a", input=large, ctx={"x": Raw(b"")}, error="", version=10**40)
    await store.commit([Commit(run_id="a", create=run, events=(event("a", output=Raw(b"")),))])
    found = await store.get("a")
    assert found.input is not None
    assert bytes(found.input) == bytes(large)
    assert bytes(found.ctx["x"]) == b""
    assert (found.error, found.version) == ("", 10**40)
    (first,) = await store.history("a")
    assert first.output is not None
    assert bytes(first.output) == b""


async def test_small_changes_do_not_rewrite_a_large_input(store: SqliteStore) -> None:
    """A run with a large input publishes a small value: the log grows by little."""
    await store.commit([Commit(run_id="a", create=Run(id="a", input=Raw(b"1" * 2_000_000)))])
    await store.checkpoint()
    await store.save(Run(id="b"))
    before = store.describe()["wal_bytes"]
    await store.commit([Commit(run_id="a", change=Change(ctx={"x": Raw(b"1")}, error="e"))])
    assert int(str(store.describe()["wal_bytes"])) - int(str(before)) < 100_000


async def test_times_of_other_zones(store: SqliteStore) -> None:
    """A time is the same moment in whatever zone it was given."""
    moment = datetime(2026, 5, 4, 3, 2, 1, 999_999, timezone(timedelta(hours=5, minutes=30)))
    await store.append("a", [event("a", timestamp=moment)])
    (found,) = await store.history("a")
    assert found.timestamp == moment


async def test_a_time_without_zone(store: SqliteStore) -> None:
    """It could be any moment, so it is none."""
    with pytest.raises(InvalidValue, match="no time zone"):
        await store.append("a", [event("a", timestamp=datetime(2026, 5, 4))])  # noqa: DTZ001
    assert await store.find_one("a") is None


@pytest.mark.proves("S-09", "S12")
async def test_a_hostile_filter_is_only_text(store: SqliteStore) -> None:
    """Names and values of filters are bound, never spliced into SQL (attack S12)."""
    name = "x' OR 1=1; DROP TABLE runs; --"
    await store.save(Run(id="a", workflow=name, attributes={name: name}))
    await store.save(Run(id="b"))
    for query in (RunQuery(workflow=name), RunQuery(attributes={name: name})):
        assert [run.id for run in (await store.find(query)).items] == ["a"]
    assert (await store.find(RunQuery(parent=name))).items == []


async def test_a_forged_cursor(store: SqliteStore) -> None:
    """A position beyond all time is a position like any other."""
    from base64 import urlsafe_b64encode

    await store.save(Run(id="a"))
    cursor = urlsafe_b64encode(b'[99999999999999999999999999, "z"]').decode().rstrip("=")
    assert len((await store.find(RunQuery(after=cursor))).items) == 1
    cursor = urlsafe_b64encode(b'[-99999999999999999999999999, "z"]').decode().rstrip("=")
    assert (await store.find(RunQuery(after=cursor))).items == []


async def test_names_with_a_nul_are_not_cut(store: SqliteStore) -> None:
    """SQLite's own functions end text at a NUL; nothing here goes through them unchecked."""
    await store.save(Run(id="a", workflow="w\0x", runnable_at=datetime(2020, 1, 1, tzinfo=UTC)))
    assert await store.claim_runs("me", 10, workflows=["w"]) == []
    assert await store.claim_runs("me", 10, run_ids=["a\0b"]) == []
    assert len(await store.claim_runs("me", 10, workflows=["w\0x"])) == 1


@pytest.mark.proves("S-02", "I28")
async def test_a_damaged_snapshot_is_told(store: SqliteStore) -> None:
    """A snapshot is kept in its envelope, which says whether it can be read."""
    await store.save_snapshot(Snapshot(run_id="a", sequence=0, data=b"\0\xff"))
    assert (await store.load_snapshot("a")).data == b"\0\xff"
