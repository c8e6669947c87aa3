"""What a benchmark found, for people, pages and pictures: all that needs no clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench import _page
from bench._plot import CHARTS, draw
from bench._table import Aim, Contest, Entry, as_json, contests_of, in_words

SVG = "{http://www.w3.org/2000/svg}"
FAST = Contest(
    "ten steps, 100 at once, SQLite",
    "steps/s",
    [
        Entry("outlast, SQLite", [4000.0, 6000.0, 5000.0], "synced"),
        Entry("DBOS & co", [200.0, 100.0, 250.0], "synced too"),
        Entry("outlast, memory", [9000.0, 9000.0, 9000.0], "not durable"),
    ],
    aims=[Aim(100, "DBOS & co"), Aim(2, "Restate")],
    left_out={"Restate": "npm is not\n installed | here"},
)
SLOW = Contest(
    "ten steps, one at a time, p50, SQLite",
    "ms",
    [Entry("outlast", [5.0]), Entry("DBOS", [40.0])],
    less=True,
    aims=[Aim(4.0), Aim(8, "DBOS")],
)
GROWN = Contest(
    "among so many runs: ten steps, SQLite",
    "ms",
    [Entry("outlast, 1,000 runs", [2.0]), Entry("outlast, 10,000 runs", [6.0])],
    less=True,
    aims=[Aim(2, "outlast, 10,000 runs")],
    grows=True,
)


def workload(*contests: Contest, failed: str = "") -> dict[str, Any]:
    """The results of a workload with one part, as they come out of a file."""
    found = {
        "race": {
            "machine": "1 May 2026, 2 cores",
            "load_before": "0.1",
            "load_after": "1.2",
            "minutes": 3.0,
            "failed": failed,
            "contests": [as_json(one) for one in contests],
        }
    }
    read: dict[str, Any] = json.loads(json.dumps(found))
    return read


def contests(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The contests of a workload."""
    return contests_of({"steps": found}, "steps")


def test_a_ratio_says_how_many_times_better_ours_is_within_each_round() -> None:
    """More of what is good, less of what is bad: above 1 outlast is better, below it the other."""
    assert FAST.ratios(FAST.entries[1]) == [20, 60, 20]
    assert SLOW.ratios(SLOW.entries[1]) == [8]
    assert GROWN.ratios(GROWN.entries[1]) == [3]


def test_an_aim_is_reached_missed_or_open() -> None:
    """An aim against somebody who did not take part is neither reached nor missed."""
    assert [FAST.reached(aim) for aim in FAST.aims] == [False, None]
    assert [SLOW.reached(aim) for aim in SLOW.aims] == [False, True]
    assert [GROWN.reached(aim) for aim in GROWN.aims] == [False]


def test_nothing_is_divided_by_nothing() -> None:
    """No steps repeated on either side is a draw; none on ours is better than any."""
    none = Contest("steps", "steps", [Entry("outlast", [0.0]), Entry("a", [0.0])], less=True)
    some = Contest("steps", "steps", [Entry("outlast", [0.0]), Entry("a", [3.0])], less=True)
    assert none.ratios(none.entries[1]) == [1]
    assert some.ratios(some.entries[1]) == [float("inf")]


def test_whoever_did_not_take_part_is_named_with_the_reason() -> None:
    """In words, in the results and on the page."""
    assert "Restate                            not measured: npm is not" in in_words(FAST)
    [contest] = contests(workload(FAST))
    assert contest["left_out"] == FAST.left_out
    rows = list(_page.table(workload(FAST)))
    assert "| Restate | not measured | | | npm is not installed \\| here |" in rows


def test_the_durability_stands_next_to_each_number() -> None:
    """Whoever reads a figure sees what it was measured under."""
    assert "[synced too]" in in_words(FAST)
    rows = list(_page.table(workload(FAST)))
    assert (
        "| DBOS & co | 200 (100–250) | 20.0 (20.0–60.0) × | 100, **missed** | synced too |" in rows
    )


def test_ours_are_not_set_against_ours_unless_they_grow() -> None:
    """outlast in memory is no rival of outlast on SQLite, but ten times the runs are compared."""
    _, _, memory = contests(workload(FAST))[0]["entries"]
    _, many = contests(workload(GROWN))[0]["entries"]
    assert "ratio" not in memory
    assert many["ratio"] == 3
    assert "at most 2, **missed**" in "\n".join(_page.table(workload(GROWN)))


def test_a_part_that_failed_is_told_on_the_page() -> None:
    """A gap in the tables has a reason."""
    rows = list(_page.table(workload(FAST, failed="OSError: no disk")))
    assert rows[-1] == "| **race** failed | | | | OSError: no disk |"


def test_a_table_says_where_and_under_which_load_it_was_measured() -> None:
    """Once for each machine and day, with the parts that were measured there."""
    [race] = workload(FAST).values()
    parts = {"race": race, "append": {**race, "minutes": 1.5}, "read": {**race, "machine": "B"}}
    assert list(_page.table(parts))[:3] == [
        (
            "1 May 2026, 2 cores. Load and time: *race* 0.1 before and 1.2 after, 3 minutes; "
            "*append* 0.1 before and 1.2 after, 1.5 minutes."
        ),
        "B. Load and time: *read* 0.1 before and 1.2 after, 3 minutes.",
        "",
    ]


def test_a_page_is_filled_between_its_marks_again_and_again() -> None:
    """What stands outside of the marks is left alone, and filling twice changes nothing."""
    text = "# A\n<!-- plot of steps -->\n<!-- end -->\n<!-- figures of steps -->\nold\n<!-- end -->\nB\n"
    results = {"steps": workload(FAST)}
    filled = _page.fill(text, results, plots={"steps": "plots/steps.svg"})
    assert filled.startswith("# A\n<!-- plot of steps -->\n![Ten-step workflows")
    assert "](plots/steps.svg)" in filled
    assert "old" not in filled
    assert filled.endswith("<!-- end -->\nB\n")
    assert _page.fill(filled, results, plots={"steps": "plots/steps.svg"}) == filled


def test_a_page_says_what_was_not_measured() -> None:
    """Without results there is no table and no picture, but a hint."""
    text = "<!-- figures of jobs -->\n<!-- end --><!-- plot of jobs -->\n<!-- end -->"
    filled = _page.fill(text, {}, plots={})
    assert filled == (
        "<!-- figures of jobs -->\n*Not measured yet: `./dev bench jobs`.*\n<!-- end -->"
        "<!-- plot of jobs -->\n<!-- end -->"
    )


def test_the_pages_show_the_results_that_are_kept() -> None:
    """The docs and docs/reports/performance.json agree."""
    assert _page.main(["--check"]) == 0


def test_every_workload_and_chart_has_its_place_on_the_page() -> None:
    """Nothing is measured or drawn that the page has no room for."""
    page = (_page.ROOT / _page.PAGES[0]).read_text(encoding="utf-8")
    from tools.modules import modules_in

    blocks = {(kind, name) for _, kind, name, _ in _page.BLOCK.findall(page)}
    wanted = {("figures", name) for name in modules_in(_page.ROOT / "bench")}
    wanted |= {("aims", "all"), ("peers", "all")}
    assert blocks == wanted | {("plot", name) for name in CHARTS}


def test_a_chart_has_a_bar_for_each_contestant(tmp_path: Path) -> None:
    """Well-formed, for light and dark, bars in proportion, names escaped; without what keeps nothing."""
    [path] = draw({"steps": workload(FAST)}, tmp_path)
    assert path.name == "steps.svg"
    root = ElementTree.parse(path).getroot()
    widths = [float(bar.get("width", "")) for bar in root.iter(f"{SVG}rect")]
    longest = max(FAST.entries[0].values)
    assert widths == pytest.approx([330 * 5000 / longest, 330 * 200 / longest], abs=0.5)
    kinds = [bar.get("class") for bar in root.iter(f"{SVG}rect")]
    assert kinds == ["bar ours", "bar"]
    texts = "".join(root.itertext())
    assert "prefers-color-scheme: dark" in texts
    assert "DBOS & co" in texts
    assert "outlast × 20.0" in texts


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    """Only the charts of the workloads that there are results for."""
    assert draw({}, tmp_path) == []
    drawn = draw({"steps": workload(SLOW), "growth": workload(GROWN)}, tmp_path)
    assert [path.stem for path in drawn] == ["latency", "growth"]
