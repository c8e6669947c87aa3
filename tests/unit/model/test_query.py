"""Queries: filters as a pure function, cursors that only a page can give."""

from __future__ import annotations

import base64
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import InvalidValue
from outlast.model import Run, RunQuery, Status
from outlast.model.query import check_limit, cursor_of, parse_cursor
from outlast.model.times import EPOCH, from_micros, to_micros

RUN = Run(
    id="r",
    workflow="order",
    status=Status.HALTED,
    parent="p",
    attributes={"n": 1, "vip": True, "rate": 1.0, "tenant": "acme"},
)


@pytest.mark.proves("D-10", "M-08", "D-39")
@pytest.mark.parametrize(
    ("query", "matches"),
    [
        (RunQuery(), True),
        (RunQuery(workflow="order"), True),
        (RunQuery(workflow="ord"), False),
        (RunQuery(status=frozenset({Status.HALTED, Status.FAILED})), True),
        (RunQuery(status=frozenset({Status.FAILED})), False),
        (RunQuery(parent="p"), True),
        (RunQuery(parent="q"), False),
        (RunQuery(attributes={"n": 1, "tenant": "acme"}), True),
        (RunQuery(attributes={"n": True}), False),
        (RunQuery(attributes={"vip": 1}), False),
        (RunQuery(attributes={"rate": 1}), False),
        (RunQuery(attributes={"missing": "x"}), False),
        (RunQuery(workflow="order", status=frozenset({Status.FAILED})), False),
    ],
)
def test_what_a_filter_means(query: RunQuery, matches: bool) -> None:
    """All filters have to pass; a value matches with its type."""
    assert query.matches(RUN) is matches


@pytest.mark.proves("D-10", "C-08")
def test_a_query_finds_100_runs_unless_told_otherwise() -> None:
    """The default that the seed names."""
    assert RunQuery().limit == 100


@pytest.mark.proves("C-08", "K-15")
@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_limit_is_between_1_and_10_000(limit: int) -> None:
    """What is out of range is refused, in a query and alone."""
    with pytest.raises(InvalidValue):
        check_limit(limit)
    with pytest.raises(InvalidValue):
        RunQuery(limit=limit).check()
    assert [check_limit(n) for n in (1, 10_000)] == [1, 10_000]


@pytest.mark.proves("C-08")
@given(st.integers(0, 4_000_000_000_000_000), st.text(min_size=1))
def test_a_cursor_names_the_run_it_was_made_of(micros: int, id: str) -> None:
    """Time to the microsecond and id come back, and the text is safe in a URL."""
    cursor = cursor_of(Run(id=id, created_at=from_micros(micros)))
    assert parse_cursor(cursor) == (micros, id)
    assert cursor.replace("-", "").replace("_", "").isalnum()
    RunQuery(after=cursor).check()


BAD = ["", "x", "not a cursor", "é", "0/", "+0", "a" * 100_000]
FORGED = [b"null", b"[]", b"[1]", b'["1","a"]', b'[1.5,"a"]', b"[[[[", b"\xff", b'[1,"a"] ']


@pytest.mark.proves("C-08", "K-15")
@pytest.mark.parametrize(
    "cursor", [*BAD, *(base64.urlsafe_b64encode(text).decode() for text in FORGED[:-1])]
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    """A typed error, whatever the text holds."""
    with pytest.raises(InvalidValue, match="cursor"):
        parse_cursor(cursor)
    with pytest.raises(InvalidValue):
        RunQuery(after=cursor).check()


@pytest.mark.proves("C-08", "K-15")
@given(st.text())
def test_no_text_crashes_the_reader_of_cursors(text: str) -> None:
    """It is a cursor, or `InvalidValue`."""
    with suppress(InvalidValue):
        parse_cursor(text)


@pytest.mark.proves("I28")
@given(st.datetimes(timezones=st.just(UTC)))
def test_times_are_exact_to_the_microsecond(moment: datetime) -> None:
    """Microseconds since 1970 name each moment exactly, before 1970 too."""
    assert from_micros(to_micros(moment)) == moment


@pytest.mark.proves("I28")
def test_times_sort_as_their_microseconds() -> None:
    """The smallest difference counts."""
    later = EPOCH + timedelta(microseconds=1)
    assert (to_micros(EPOCH), to_micros(later)) == (0, 1)
