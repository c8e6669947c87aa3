"""What people see: neutral text, tables that fit, times as they are said."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.cli.output import (
    Cell,
    Column,
    ago,
    fitted,
    length,
    neutral,
    shortened,
    to_json,
    width_of,
)
from tests.unit.cli.stage import piped

NOW = datetime(2026, 11, 15, tzinfo=UTC)
NASTY = "a\x1b[31mred\x07\r\nb\u202eevil\u2066\u200b\x9b2J\u2028\ufeff\U000e0041"


@pytest.mark.proves("S11")
def test_control_and_bidi_characters_become_escapes() -> None:
    """Nothing of a user's data moves the cursor, changes colours or turns text around."""
    shown = neutral(NASTY)
    assert shown.isprintable()
    assert shown.startswith("a\\x1b[31mred\\x07\\r\\nb\\u202eevil")
    assert neutral("Größe 大 ñ") == "Größe 大 ñ"


@pytest.mark.proves("S11")
@given(st.text())
def test_json_is_neutral_and_still_the_same_value(text: str) -> None:
    """In JSON the escape is JSON's own, so a program reads what was stored."""
    line = to_json({"value": text})
    assert json.loads(line) == {"value": text}
    assert neutral(line) == line


@given(st.text(), st.integers(1, 30))
def test_shortened_text_fits(text: str, width: int) -> None:
    """What does not fit ends with an ellipsis, and no text is wider than asked for."""
    safe = neutral(text)
    assert width_of(shortened(safe, width)) <= width


CELLS = st.lists(st.text(alphabet="abc 大", max_size=30).map(Cell), min_size=3, max_size=3)


@given(st.lists(CELLS, max_size=5), st.integers(20, 100))
def test_a_table_fits_its_terminal(rows: list[list[Cell]], width: int) -> None:
    """Columns that matter less go, the widest are shortened, and all lines end in time."""
    columns = [Column("ID", 8), Column("WHAT", 6, 1), Column("MORE", 4, 2)]
    for line in fitted(columns, rows, width):
        assert width_of("".join(cell.text for cell in line).rstrip()) <= width


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"), (0.0001, "<1ms"), (0.035, "35ms"), (1.24, "1.2s"), (59, "59s"), (61, "1m 1s"),
        (3600, "1h"), (3661, "1h 1m"), (90_000, "1d 1h"), (86_400 * 400, "400d"),
    ],
)  # fmt: skip
def test_lengths_of_time(seconds: float, told: str) -> None:
    """Two units at most."""
    assert length(seconds) == told


def test_moments_are_told_from_now() -> None:
    """Past, future and now."""
    assert ago(NOW - timedelta(minutes=3), NOW) == "3m ago"
    assert ago(NOW + timedelta(hours=2), NOW) == "in 2h"
    assert ago(NOW, NOW) == "now"


def test_a_shell_completes_runs_workflows_and_steps(shop: Path) -> None:
    """What the store has is offered, to any of the shells; without a store nothing is, and no error
    is shown."""

    def offered(*words: str, **variables: str) -> list[str]:
        typed = " ".join(["outlast", *words])
        done = piped(
            shop,
            COMP_WORDS=typed,
            COMP_CWORD=str(len(words)),
            _OUTLAST_COMPLETE="bash_complete",
            **variables,
        )
        assert "Traceback" not in done.stderr
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    assert offered("show", "order-w") == ["order-waits"]
    assert "order-lost" in offered("cancel", "order-done", "order-l")
    assert offered("start", "ch") == ["checkout"]
    assert "charge" in offered("fork", "order-done", "ch")
    assert offered("show", "order", OUTLAST_STORE="sqlite:///not-there.db") == []
    assert offered("show", "order", OUTLAST_STORE="postgresql://localhost:1/x") == []
