"""What cannot be understood is told with its place; what can be means what it says."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.errors import InvalidQuery
from outlast.model.run import Run, Status
from outlast.query import parse
from outlast.query.filter import length_of, wild
from outlast.query.plan import plan

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)

WRONG = [
    ("statsu:failed", 0, "unknown field 'statsu', did you mean 'status'?"),
    ("age>1d colour:red", 7, "unknown field 'colour', there are status, "),
    ("status:faild", 7, "'faild' is not a status, did you mean 'failed'?"),
    ("status>failed", 6, "a status is compared with : or !="),
    ("age>tomorrow", 4, "'tomorrow' is not a duration"),
    ("age:1d", 3, "as in age>1d"),
    ("created>soon", 8, "'soon' is not a time: use 2026-11-15"),
    ("created>2026-13-01", 8, "is not a time"),
    ('created>"now\n"', 8, "is not a time"),
    ("created>9999-12-31T23:59:59-05:00", 8, "is not a time"),
    ("age>999999999d23h", 4, "is not a duration"),
    ("created~1", 7, "created is a time"),
    ("workflow>a", 8, "workflow is text: compare it with :, != or ~"),
    ("(status:failed", 0, "this '(' has no matching"),
    ("status:failed)", 13, "this ')' has no matching"),
    ('error~"time', 6, "this text has no closing quote"),
    ("status:", 7, "expected a value here"),
    ("status:failed,", 14, "expected a value here"),
    ("failed", 0, "add a field to 'failed': status:failed"),
    ("age>1d checkout", 7, "add a field to 'checkout': id:checkout, workflow:checkout"),
    ("not", 3, "expected a test here, such as status:failed"),
    ("status:failed or", 16, "expected a test here, such as status:failed"),
    ("attr.=1", 0, "name the attribute: attr.NAME"),
    ("age>1d,2d", 7, "only one value can be compared with >"),
    (", status:failed", 0, "expected a test"),
    ("(" * 60 + "id:a", 50, "nested at most 50 deep"),
    ("id:a " * 1000, 79, "at most 4000 characters"),
    ("id:a attr.b=\udcff", 12, "half of a character"),
]


@pytest.mark.parametrize(("text", "position", "told"), WRONG)
def test_errors_say_where_and_what_to_write(text: str, position: int, told: str) -> None:
    """The message names what is wrong, what was probably meant, and points at the place."""
    with pytest.raises(InvalidQuery) as caught:
        parse(text)
    assert told in caught.value.problem
    assert caught.value.position == position
    assert str(caught.value).splitlines()[-1] == "  " + " " * position + "^"


RIGHT = [
    ("", True),
    ("   ", True),
    ("STATUS:Failed", True),
    ("status=failed and workflow=checkout", True),
    ("status:completed or workflow:checkout error~TIME", True),
    ("status:completed or workflow:other", False),
    ("not status:completed", True),
    ("not not status:failed", True),
    ("status:ended", True),
    ("status:open", False),
    ("status:canceled,failed", True),
    ("id:run-1", True),
    ("id:run*", True),
    ('id:"run*"', False),
    ("attr.na-me.x='a b'", True),
    ("attr.n>=3 attr.n<3.5", True),
    ("attr.missing<3", False),
    ("attr.missing!=3", True),
    ("created:2026-11-14", True),
    ("created:yesterday", True),
    ("created<2026-11-14T13:00+01:00", False),
    ("created<=2026-11-14T13:00+01:00", True),
    ("age>=1d", True),
    ("age>1d", False),
    ("age<1d12h", True),
    ("ended<now", False),
    ("not ended<now", True),
    ("updated>2020-01-01", True),
    ("created:9999-12-31", False),
    ("created<=9999-12-31T23:59:59.999999", True),
    ("created>9999-12-31T23:59:59.999999", False),
    ("created>now+2921939d", False),
    ("created>now-2921939d", True),
    ("updated:now+2921939d", False),
    ("age>900000d", False),
    ("age<999999999d", True),
    ("or:1 or id:run-1", None),
]


@pytest.mark.parametrize(("text", "expected"), RIGHT)
def test_meanings(text: str, expected: bool | None) -> None:
    """`and` binds closer than `or`; nothing is equal, less or greater if it is not there."""
    run = Run(
        id="run-1",
        workflow="checkout",
        status=Status.FAILED,
        error="TimeoutError: no answer",
        attributes={"na-me.x": "a b", "n": 3},
        created_at=NOW - timedelta(days=1),
        updated_at=NOW,
    )
    if expected is None:
        with pytest.raises(InvalidQuery, match="unknown field 'or'"):
            parse(text)
    else:
        asked = parse(text)
        assert asked.matches(run, NOW) is expected
        span = plan(asked, NOW)
        inside = (span.since is None or span.since <= run.created_at) and (
            span.until is None or run.created_at < span.until
        )
        assert inside or not expected


@given(st.text(max_size=60) | st.text(alphabet="statusid:=<>~!()\"'*, ornt.1d", max_size=60))
def test_any_text_is_understood_or_refused(text: str) -> None:
    """No text makes the parser stumble, and what it understands can be asked of any run."""
    position = 0
    try:
        assert parse(text).matches(Run(id="a"), NOW) in (True, False)
    except InvalidQuery as refused:
        position = refused.position
    assert 0 <= position <= len(text)


@given(
    st.lists(st.sampled_from(["a", "b", "ab", ""]), max_size=5), st.text(alphabet="ab", max_size=8)
)
def test_stars_stand_for_anything(parts: list[str], text: str) -> None:
    """A pattern matches as the regular expression of the same meaning does."""
    pattern = "*".join(parts)
    expected = re.fullmatch(".*".join(map(re.escape, parts)), text, re.DOTALL) is not None
    assert wild(pattern, text) is expected


def test_lengths_of_time() -> None:
    """Units combine; what is no length is none."""
    assert length_of("1d12h") == timedelta(days=1, hours=12)
    assert length_of("1.5h") == timedelta(minutes=90)
    assert length_of("500ms") == timedelta(milliseconds=500)
    for wrong in ("", "d", "1", "1y", "1d2", "-1d", "999999999w"):
        assert length_of(wrong) is None
