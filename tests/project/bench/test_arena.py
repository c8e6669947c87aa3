"""What all benchmarks share: arguments, rounds that alternate, parts that fail, peers that are missing."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from bench import _machine
from bench._arena import Arena, Size, compete, parse
from bench._peers import PeerMissing, told
from bench._results import OLD
from bench._table import Contest, Entry
from tools.modules import modules_in, results_of

ROOT = Path(__file__).resolve().parents[3]
SIZES = {"jobs": Size(50, 1_000, "jobs to do")}


def one(_: Arena) -> list[Contest]:
    """A part that finds something."""
    return [Contest("one", "/s", [Entry("outlast", [1.0])])]


def two(_: Arena) -> list[Contest]:
    """A part that breaks."""
    raise ValueError("no luck")


PARTS = {"two": two, "one": one}


@pytest.fixture(autouse=True)
def a_short_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """How busy the machine is does not matter here."""
    monkeypatch.setattr(_machine, "LOOK", 0.01)


def test_a_size_is_what_was_asked_for_or_the_full_one_or_the_usual_one() -> None:
    """`--full` is for all sizes that were not named."""
    assert parse("x", "", [], PARTS, 3, SIZES).jobs == 50
    assert parse("x", "", ["--full"], PARTS, 3, SIZES).jobs == 1_000
    assert parse("x", "", ["--full", "--jobs", "7"], PARTS, 3, SIZES).jobs == 7


@pytest.mark.parametrize(
    "argv", [["--rounds", "0"], ["--jobs", "-1"], ["--only", "three"], ["--nobody-knows"]]
)
def test_what_makes_no_sense_is_refused(argv: list[str]) -> None:
    """A typing error does not start half an hour of work."""
    with pytest.raises(SystemExit) as refused:
        parse("x", "", argv, PARTS, 3, SIZES)
    assert refused.value.code == 2


@pytest.mark.parametrize("name", modules_in(ROOT / "bench"))
def test_every_benchmark_says_how_it_is_used(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a story, parts, and the arguments that all have."""
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"bench.{name}").main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"./dev bench {name}" in said
    for option in ("--rounds", "--only", "--alone", "--full", "--json", "--plot"):
        assert option in said


def test_a_part_that_fails_does_not_take_the_others_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest is measured and written, the failure is told, and the status says so."""
    target = tmp_path / "found.json"
    assert compete(__name__, ["--json", str(target)], PARTS, rounds=1) == 1
    assert "FAILED: test_arena two: ValueError: no luck" in capsys.readouterr().out
    found = json.loads(target.read_text(encoding="utf-8"))["test_arena"]
    assert [contest["name"] for contest in found["one"]["contests"]] == ["one"]
    assert {part: about["failed"] for part, about in found.items()} == {
        "two": "ValueError: no luck",
        "one": "",
    }


def test_a_part_that_is_measured_again_replaces_what_it_had_and_nothing_else(
    tmp_path: Path,
) -> None:
    """A benchmark that was ended half way goes on with the parts that are missing."""
    target = tmp_path / "found.json"
    compete(__name__, ["--json", str(target)], PARTS, rounds=1)
    mended = {"two": one, "one": two}
    assert compete(__name__, ["--json", str(target), "--only", "two"], mended, rounds=1) == 0
    found = json.loads(target.read_text(encoding="utf-8"))["test_arena"]
    assert [(part, len(about["contests"])) for part, about in found.items()] == [
        ("two", 1),
        ("one", 1),
    ]


def test_a_part_that_fails_when_it_is_measured_again_keeps_its_figures(tmp_path: Path) -> None:
    """A bad moment does not cost what was found in a good one, and is told next to it."""
    target = tmp_path / "found.json"
    compete(__name__, ["--json", str(target)], {"one": one}, rounds=1)
    assert compete(__name__, ["--json", str(target)], {"one": two}, rounds=1) == 1
    found = json.loads(target.read_text(encoding="utf-8"))["test_arena"]["one"]
    assert [contest["name"] for contest in found["contests"]] == ["one"]
    assert found["failed"] == f"ValueError: no luck ({OLD})"
    assert [file.name for file in tmp_path.iterdir()] == ["found.json"]


def test_what_was_measured_before_an_interruption_is_kept(tmp_path: Path) -> None:
    """Ctrl-C in the second part leaves the first one's figures in the file that was asked for, next to
    those of other workloads."""

    def interrupted(_: Arena) -> list[Contest]:
        raise KeyboardInterrupt

    target = tmp_path / "found.json"
    target.write_text('{"jobs": {"redis": {}}}', encoding="utf-8")
    with pytest.raises(KeyboardInterrupt), results_of("test_arena", target) as arguments:
        compete(__name__, arguments, {"one": one, "two": interrupted}, rounds=1)
    found = json.loads(target.read_text(encoding="utf-8"))
    assert list(found) == ["jobs", "test_arena"]
    assert list(found["test_arena"]) == ["one"]


ENDED_BY_ITS_CALLER = """
import os, pathlib, signal, sys

def end(*_):
    pathlib.Path(sys.argv[-1]).touch()
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
os.kill(os.getppid(), signal.SIGTERM)
while True:
    signal.pause()
"""
CALLER = """
import sys
from tools import modules
modules.CALL_MAIN = sys.argv[1]
sys.exit(modules.main(["bench", "steps", sys.argv[2]]))
"""


def test_a_module_is_ended_with_the_one_that_called_it(tmp_path: Path) -> None:
    """SIGTERM reaches it, and it is waited for, so that it can stop its servers."""
    command = [sys.executable, "-c", CALLER, ENDED_BY_ITS_CALLER, str(tmp_path / "ended")]
    assert subprocess.run(command, timeout=60, check=False, cwd=ROOT).returncode == 143
    assert (tmp_path / "ended").exists()


def test_rounds_alternate_and_who_is_missing_is_left_out_by_name() -> None:
    """One after the other in each round, which begins with another one; a peer that fails is not asked
    again, the others are."""
    order: list[str] = []

    def noted(who: str, value: float) -> float:
        order.append(who)
        return value

    def peer() -> float:
        order.append("peer")
        raise PeerMissing("not for this machine")

    def broken() -> float:
        raise TimeoutError("no answer")

    def contests(arena: Arena) -> list[Contest]:
        found, left_out = arena.alternate(
            {
                "outlast": lambda: noted("outlast", 1.0),
                "peer": peer,
                "broken": broken,
                "other": lambda: noted("other", 2.0),
            }
        )
        assert found == {"outlast": [1.0, 1.0], "other": [2.0, 2.0]}
        assert left_out == {
            "peer": "not for this machine",
            "broken": "TimeoutError: no answer",
        }
        return []

    assert compete(__name__, ["--rounds", "2"], {"one": contests}, rounds=3) == 0
    assert order == ["outlast", "peer", "other", "other", "outlast"]


def test_two_contestants_take_turns_in_being_first() -> None:
    """Also in more rounds than there are contestants."""
    order: list[str] = []

    def contests(arena: Arena) -> list[Contest]:
        arena.alternate({who: partial(order.append, who) for who in ("outlast", "other")})
        return []

    assert compete(__name__, [], {"one": contests}, rounds=3) == 0
    assert order[::2] == ["outlast", "other", "outlast"]


def test_what_a_contestant_has_left_is_removed_before_the_next() -> None:
    """Its file and all that stands beside it; what was there before the contest stays."""

    def contests(arena: Arena) -> list[Contest]:
        def leave() -> list[str]:
            file = Path(arena.place("SQLite").removeprefix("sqlite:///"))
            for name in (file, file.with_suffix(".db-wal"), file.with_suffix(".wal")):
                name.touch()
            return sorted(one.name for one in arena.folder.iterdir())

        before = leave()
        found, _ = arena.alternate({"outlast": leave, "other": leave})
        assert [len(one) for rounds in found.values() for one in rounds] == [6] * 4
        assert sorted(one.name for one in arena.folder.iterdir()) == before
        return []

    assert compete(__name__, ["--rounds", "2"], {"one": contests}, rounds=1) == 0


def test_the_load_is_what_the_cores_do_now() -> None:
    """A part of all of them, between nothing and all."""
    assert re.fullmatch(r"(100|\d?\d) % of \d+ cores|[\d.]+ on \d+ cores", _machine.load())


def test_ours_may_not_be_missing() -> None:
    """A contest without outlast would set the others against each other: that is a failure."""

    def ours() -> float:
        raise PeerMissing("a mistake of ours")

    def contests(arena: Arena) -> list[Contest]:
        arena.alternate({"outlast, SQLite": ours})
        return []

    assert compete(__name__, [], {"one": contests}, rounds=1) == 1


WAITS = "import json, sys; print('ready', flush=True); sys.stdin.readline(); print(json.dumps({}))"


def test_programs_get_the_word_when_all_are_ready(tmp_path: Path) -> None:
    """Each says that it is ready, waits, and prints what it found."""
    assert told([[sys.executable, "-c", WAITS]] * 2, tmp_path) == [{}, {}]


@pytest.mark.parametrize("code", ["raise ValueError('old')", f"{WAITS}; raise ValueError('old')"])
def test_a_program_that_dies_is_missing_with_its_last_words(code: str, tmp_path: Path) -> None:
    """Before it was ready, or after: the reason is its own."""
    with pytest.raises(PeerMissing, match=r"ended with 1.*ValueError: old"):
        told([[sys.executable, "-c", code]], tmp_path)


def test_a_program_that_never_ends_is_killed(tmp_path: Path) -> None:
    """A peer that hangs does not hold up the rest."""
    with pytest.raises(PeerMissing, match="took too long and was killed before it was ready"):
        told([[sys.executable, "-c", "import signal; signal.pause()"]], tmp_path, patience=0.2)


def test_a_program_that_is_not_there_is_missing(tmp_path: Path) -> None:
    """As when a peer's environment is broken."""
    with pytest.raises(PeerMissing, match="No such file"):
        told([[str(tmp_path / "nothing")]], tmp_path)
