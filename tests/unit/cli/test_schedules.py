"""`outlast schedules`: seen and changed from outside, while a worker keeps them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.cli.main import Exit
from tests.unit.cli.stage import environment, piped

APP = """
import outlast


@outlast.workflow
async def report(region: str) -> str:
    return region


app = outlast.App(
    "sqlite:///outlast.db",
    schedules=[
        outlast.Schedule("nightly", report("eu"), cron="0 2 * * *",
                         timezone="Europe/Berlin"),
        outlast.Schedule("often", report(region="us"), every=3600),
    ],
)
"""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with an app, and a worker of it."""
    (tmp_path / "reports.py").write_text(APP)
    command = [sys.executable, "-m", "outlast", "worker", "reports:app"]
    worker = subprocess.Popen(
        command, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    assert worker.stderr is not None
    try:
        assert any("running report;" in line for line in worker.stderr)
        yield tmp_path
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def told(place: Path, *args: str) -> list[dict[str, object]]:
    """What a command tells, as JSON."""
    done = piped(place, "schedules", *args)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_schedules_from_outside(place: Path) -> None:
    """List, pause, trigger, backfill, resume, show, remove: each in a process of its own."""
    assert [(one["name"], one["status"]) for one in told(place, "ls")] == [
        ("nightly", "active"),
        ("often", "active"),
    ]
    assert told(place, "pause", "nightly", "--note", "transfer")[0]["did"] == "paused"
    (triggered,) = told(place, "trigger", "nightly")
    days = ["2026-10-24T00:00Z", "2026-10-27T00:00Z"]
    (filled,) = told(place, "backfill", "nightly", *days)
    assert filled["runs"] == [
        "nightly@20261024T000000Z", "nightly@20261025T000000Z", "nightly@20261026T010000Z",
    ]  # fmt: skip
    assert told(place, "resume", "nightly")[0]["did"] == "resumed"
    (shown,) = told(place, "show", "nightly")
    changes = shown["changes"]
    assert isinstance(changes, list)
    assert [one["what"] for one in changes] == [
        "paused", f"triggered {triggered['run']}", "backfilled 3", "resumed",
    ]  # fmt: skip
    assert changes[0]["note"] == "transfer"
    assert changes[0]["by"]
    assert told(place, "rm", "often", "--yes")[0]["did"] == "removed"
    assert [one["name"] for one in told(place, "ls")] == ["nightly"]
    for args, said in (
        (["show", "nope"], "schedule 'nope'"),
        (["backfill", "nightly", "yesterday", "today"], "not a time"),
    ):
        refused = piped(place, "schedules", *args)
        assert refused.returncode != Exit.OK
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_bulk_command_leaves_schedules_alone(place: Path) -> None:
    """`status:open` does not mean the runs that keep schedules; a query that names one does."""
    for words in ("status:open", "workflow:report or status:waiting"):
        done = piped(place, "cancel", "--where", words, "--yes")
        assert (done.returncode, done.stdout) == (Exit.OK, "")
    assert [one["status"] for one in told(place, "ls")] == ["active", "active"]
    asked = piped(place, "terminate", "--where", "id:schedule@often", "--yes")
    assert asked.returncode == Exit.OK
    assert [one["status"] for one in told(place, "ls")] == ["active", "cancelled"]
