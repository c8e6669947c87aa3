"""Snapshots: the envelope says how to read the blob; a damaged one is a typed error."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from outlast.errors import Undecodable
from outlast.model import Progress, Snapshot
from outlast.model.run_contents import MAGIC, Position

FULL = Snapshot(
    run_id="r~1",
    sequence=42,
    data=bytes(range(256)),
    definition="sha256-abc",
    codec="json+zlib",
    created_at=datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
)


@pytest.mark.proves("C-09", "S-10")
@pytest.mark.parametrize("snapshot", [FULL, Snapshot(run_id="r", sequence=0, data=b"")])
def test_an_envelope_holds_a_snapshot(snapshot: Snapshot) -> None:
    """What is packed comes out equal, an empty body too."""
    assert Snapshot.unpack(snapshot.pack()) == snapshot


@pytest.mark.proves("C-09")
def test_an_envelope_begins_with_its_mark() -> None:
    """The first bytes say what it is and in which format."""
    assert FULL.pack().startswith(MAGIC)


@pytest.mark.proves("C-09", "K-15")
@pytest.mark.parametrize(
    "envelope",
    [
        b"",
        b"OLS",
        b"OLS2" + FULL.pack()[4:],
        b"\x80\x04\x95pickle",
        MAGIC,
        MAGIC + b"\xff\xff\xff\xff",
        MAGIC + b"\x00\x00\x00\x02{}",
        FULL.pack()[:20],
    ],
)
def test_a_damaged_envelope_is_an_error(envelope: bytes) -> None:
    """Another mark, another format, or a header that is cut off raises `Undecodable`."""
    with pytest.raises(Undecodable):
        Snapshot.unpack(envelope)


@pytest.mark.proves("C-09", "K-15")
@given(st.binary(), st.integers(0, 200), st.integers(0, 255))
def test_no_bytes_crash_the_reader(noise: bytes, place: int, byte: int) -> None:
    """Noise, and a good envelope with one byte changed, are read or refused, never more."""
    good = bytearray(FULL.pack())
    good[place % len(good)] = byte
    for envelope in (noise, MAGIC + noise, bytes(good)):
        with suppress(Undecodable):
            Snapshot.unpack(envelope)


@pytest.mark.proves("S-11", "S-25")
def test_progress_says_what_is_done_and_where_the_run_stands() -> None:
    """Completed tasks with outputs, position, last task and initial input survive."""
    progress = Progress(
        input=Raw(b'{"order":7}'),
        completed={"book": Raw(b"null"), "pay": Raw(b"[1]")},
        position=Position.AT_JOIN,
        at=["ship"],
        last_completed="pay",
    )
    assert Progress.decode(progress.encode()) == progress
    assert Progress.decode(Progress().encode()) == Progress()


@pytest.mark.proves("S-25")
def test_the_positions() -> None:
    """Not started, at a task, at a fork, at a join."""
    assert [position.value for position in Position] == [
        "not_started",
        "at_task",
        "at_fork",
        "at_join",
    ]


@pytest.mark.proves("S-09", "K-15")
@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"position":"nowhere"}', b"\xff"])
def test_what_is_no_progress_is_an_error(body: bytes) -> None:
    """Another body raises `Undecodable`."""
    with pytest.raises(Undecodable):
        Progress.decode(body)
