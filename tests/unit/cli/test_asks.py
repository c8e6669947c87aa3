"""`outlast asks`: questions seen and answered without the code that asks them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.cli.main import Exit
from tests.unit.cli.stage import environment, piped, terminal

APP = """
import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import outlast


@dataclass
class Approval:
    approved: bool
    amount: int
    reason: Literal["travel", "food"] | None = None


@outlast.workflow
async def expense() -> str:
    approval, note = await asyncio.gather(
        outlast.ask("approve", Approval, to="finance", title="Approve it?", data={"amount": 7},
                    due=timedelta(days=1)),
        outlast.ask("note", str, to="ann"),
    )
    return f"{approval.approved} {approval.amount} {approval.reason} {note}"


app = outlast.App("sqlite:///outlast.db", workflows=[expense])


async def fill() -> None:
    async with app:
        run = await app.start(expense(), id="e")
        async for event in run.events(follow=True):
            if event.type == "halt.started" and len(await run.asks()) == 2:
                break


async def finish() -> None:
    async with app:
        print(await app.get("e").result(timeout=60))


if __name__ == "__main__":
    import sys
    asyncio.run(globals()[sys.argv[1]]())
"""


def run_app(place: Path, what: str) -> str:
    """What a function of the app prints."""
    done = subprocess.run(
        [sys.executable, "expenses.py", what],
        cwd=place, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a store in which a run asks two questions, and no worker."""
    (tmp_path / "expenses.py").write_text(APP)
    run_app(tmp_path, "fill")
    return tmp_path


def listed(place: Path, *args: str) -> list[dict[str, object]]:
    """The open questions."""
    done = piped(place, "asks", "ls", *args)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_questions_in_a_pipe(place: Path) -> None:
    """Listed by whom they are to, shown, answered once; a wrong value and a second answer are refused."""
    approve, note = listed(place)
    assert [approve["title"], note["title"]] == ["Approve it?", "note"]
    assert [one["id"] for one in listed(place, "--to", "finance")] == [approve["id"]]
    id = str(approve["id"])
    why = json.loads(piped(place, "why", "e").stdout.splitlines()[0])
    assert "It waits for 'finance' to answer 'Approve it?'" in json.dumps(why)
    assert f"outlast asks answer {id}" in json.dumps(why)
    wrong = piped(place, "asks", "answer", id, "--value", '{"approved": true, "amount": "x"}')
    assert wrong.returncode == Exit.USAGE
    assert "amount needs a whole number" in wrong.stderr
    assert piped(place, "asks", "answer", id).returncode == Exit.USAGE  # no terminal, no value
    value = '{"approved": true, "amount": 3}'
    done = piped(place, "asks", "answer", id, "--value", value, "--by", "ann")
    assert json.loads(done.stdout) == {"ask": id, "did": "answered", "by": "ann"}
    again = piped(place, "asks", "answer", id, "--value", value, "--by", "bob")
    assert again.returncode == Exit.REFUSED
    assert "was answered by ann at" in again.stderr
    shown = json.loads(piped(place, "asks", "show", id).stdout)
    assert (shown["status"], shown["by"]) == ("answered", "ann")
    assert [one["id"] for one in listed(place)] == [note["id"]]
    assert piped(place, "asks", "show", "e/nothing1").returncode == Exit.NOT_FOUND
    assert piped(place, "resume", "e", "--value", '"well"').returncode == 0  # the only one left
    assert run_app(place, "finish") == "True 3 None well\n"


def test_of_several_processes_one_is_first(place: Path) -> None:
    """Each person answers in a process of their own, all at once: one is accepted, and the others learn who it was."""
    id = str(listed(place)[0]["id"])
    people = ["ann", "bob", "carl"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "outlast", "asks", "answer", id, "--by", by,
             "--value", json.dumps({"approved": True, "amount": number})],
            cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number, by in enumerate(people)
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, Exit.REFUSED, Exit.REFUSED]
    first = people[codes.index(0)]
    assert [f"answered by {first} at" in text for text in said].count(True) == 2


def test_the_form_on_a_terminal(place: Path) -> None:
    """Each field is asked for, what does not fit is asked for again, and one that may be empty is left out."""
    id = str(listed(place)[0]["id"])
    with terminal(place, "asks", "answer", id, "--by", "ann") as screen:
        screen.read_until("approved (yes or no): ")
        screen.type("perhaps\n")
        screen.read_until("needs true or false")
        screen.type("yes\n")
        screen.read_until("amount (whole number): ")
        screen.type("12\n")
        screen.read_until("reason (")
        screen.type("food\n")
        assert screen.end() == 0
        assert "Approve it?" in screen.shown
        assert f"answered  {id}" in screen.shown
    with terminal(place, "asks", "ls") as screen:
        screen.end()
        assert "TITLE" in screen.shown
        assert "note" in screen.shown
        assert "Approve it?" not in screen.shown
    other = str(listed(place)[0]["id"])
    with terminal(place, "asks", "answer", other, "--by", "ann") as screen:
        screen.read_until("answer (text): ")
        screen.type("\x04")  # Ctrl-D: nothing is answered
        assert screen.end() == Exit.USAGE
    piped(place, "asks", "answer", other, "--value", '"so"')
    assert run_app(place, "finish") == "True 12 food so\n"
