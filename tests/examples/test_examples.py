"""Every example runs by one line, in a process of its own, and does what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(name: str, *args: str) -> str:
    """What an example prints; it must end well. A log line on stderr is no harm, an error is."""
    command = [sys.executable, str(EXAMPLES / name), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def in_order(text: str, *lines: str) -> bool:
    """Whether the lines stand in the text, one after the other."""
    places = [text.find(line) for line in lines]
    return -1 not in places and places == sorted(places)


@pytest.mark.proves("I8", "R-22", "S-16")
def test_quickstart() -> None:
    """The order is killed, goes on, and no recorded step runs twice."""
    shown = run("quickstart.py")
    assert in_order(shown, "exit code -9", "done: Receipt", "killed here", "workflow.completed")
    assert "No recorded step ran twice." in shown


def test_approval() -> None:
    """The manager decides two expenses; the one that nobody answers ends with the director."""
    shown = run("approval.py")
    assert in_order(shown, "Four expenses", "goes on holiday", "'train' needs a decision", "In the")
    end = shown.partition("In the end:\n")[2]
    assert [line.split(maxsplit=1) for line in end.splitlines()] == [
        ["coffee", "paid 12 €"],
        ["train", "paid 130 €, approved by the director"],
        ["desk", "paid 400 €, approved by the manager"],
        ["yacht", "refused by the manager"],
    ]
    assert "the bank pays 90000" not in shown


@pytest.mark.proves("I20")
def test_trip_saga() -> None:
    """The trip without a car is undone, flight before hotel; the other one stands."""
    lisbon, _, reykjavik = run("trip_saga.py").partition("A trip to Reykjavík")
    assert "all set    H-1, F-2, C-3" in lisbon
    assert "cancelled" not in lisbon
    assert in_order(
        reykjavik,
        "booked     a hotel",
        "booked     a flight",
        "sold out",
        "cancelled  the flight",
        "cancelled  the hotel",
        "no trip    step 'rent_car' failed",
        "compensation.completed",
        "workflow.failed",
    )
    assert "returned" not in reykjavik


def test_nightly_report() -> None:
    """One report a night, also when the clocks go back; after an absence the last one is made up."""
    shown = run("nightly_report.py")
    nights = "nightly@20261024T003000Z, nightly@20261025T003000Z, nightly@20261026T013000Z"
    assert f"three nights: {nights} (0 missed)" in shown
    after = f"{nights}, nightly@20261029T013000Z, nightly@20261030T013000Z (2 missed)"
    assert in_order(shown, f"after three days away: {after}", "now: 20 orders in eu")


def test_import_map(tmp_path: Path) -> None:
    """Good rows are in the shop, bad ones in the report; running it again changes nothing."""
    for _ in range(2):
        shown = run("import_map.py", str(tmp_path))
        assert in_order(shown, "300 are done", "297 imported, 3 rejected", "row 90: 'free'")
        assert "The shop has 297 products." in shown


@pytest.mark.proves("I8", "R-22")
def test_agent_loop() -> None:
    """The killed agent goes on; each thought was paid for once, the tool cut off ran twice."""
    shown = run("agent_loop.py")
    assert in_order(shown, "the bank is slow", "killed: exit code -9", "answers: 13200 yen")
    bill = shown.partition("The bill:\n")[2].splitlines()[:4]
    assert [line.split() for line in bill] == [
        ["thought", "4"],
        ["find_hotels", "1"],
        ["exchange_rate", "2"],
        ["multiply", "1"],
    ]


def test_subscription() -> None:
    """Twelve months are paid, the third one two days late."""
    shown = run("subscription.py")
    assert shown.count("has paid") == 12
    assert shown.count("is declined") == 2
    assert in_order(shown, "2030-03-04  month  3  Ada has paid, late", "2030-04-03  month  4")
    assert "In the end: Ada has left in month 12: I have read everything." in shown


@pytest.mark.proves("S-15", "S-16", "R-22")
def test_tiny_engine() -> None:
    """A worker is killed in the middle of a task; another process takes the task over."""
    shown = run("tiny_engine.py")
    assert in_order(shown, "first: writing", "exit code -9", "second: write is done", "Sent:")
    assert shown.count("task.done") == 6
    assert "Sent: ALL IS WELL. IT RAINS. | all is well. it rains." in shown


def test_every_example_is_run_and_listed() -> None:
    """No example without a test, and none that the list of examples does not name."""
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert names - tested == set()
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert {name for name in names if f"[{name}.py]({name}.py)" not in listed} == set()
