"""Where the time goes: stacks that are looked at, by layer, and drawn."""

from __future__ import annotations

import time
from pathlib import Path
from xml.etree import ElementTree

from bench._flame import COLOURS, flame, tree
from bench._plot import draw
from bench._sampling import LAYERS, WAITING, name_of, sampled, shares, stack_of
from bench._table import Contest, Entry, as_json
from bench.profile import pruned

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"
STACKS = {
    ("asyncio|asyncio", "engine|engine.drive: RunDriver.go"): 6.0,
    ("asyncio|asyncio", "engine|engine.drive: RunDriver.go", "codec|codecs.json: <encode>"): 3.0,
    ("asyncio|asyncio", WAITING): 1.0,
}


def test_a_function_belongs_to_the_layer_of_its_file() -> None:
    """Of the package, of the benchmark, of asyncio; others count for whoever has called them."""
    commit = "COMMIT and its sync"
    driver = "engine.runner.run_driver: RunDriver.run"
    assert (
        name_of("/a/src/outlast/engine/runner/run_driver.py", "RunDriver.run") == f"engine|{driver}"
    )
    loop = "engine.replay.event_loop: f.g"
    assert (
        name_of("/a/outlast/engine/replay/event_loop.py", "f.<locals>.g") == f"workflow loop|{loop}"
    )
    assert name_of("/a/bench/_profiled.py", "Named.commit") == f"{commit}|{commit}"
    assert name_of("/usr/lib/python3/asyncio/events.py", "Handle._run") == "asyncio|asyncio"
    assert name_of("/usr/lib/python3/selectors.py", "EpollSelector.select") == WAITING
    assert name_of("/usr/lib/python3/json/decoder.py", "decode") == ""


def test_every_layer_is_there_and_has_a_colour() -> None:
    """A folder that was moved, or a layer without a colour, would be missed without a word."""
    for path in LAYERS:
        if path != "asyncio":
            place = path.partition(":")[0]
            assert (ROOT / place).exists() or (ROOT / "src" / place).exists(), place
    assert set(LAYERS.values()) | {"waiting"} == set(COLOURS)


def test_time_is_counted_by_stack() -> None:
    """All of the time that passes is counted, whatever this thread does."""
    begun = time.perf_counter()
    with sampled() as stacks:
        while sum(stacks.values()) < 0.05:
            sum(range(1_000))
    assert 0.05 <= sum(stacks.values()) <= time.perf_counter() - begun
    assert set(stacks) == {stack_of(None)}, "nothing of any layer ran here"
    assert shares(stacks) == {"elsewhere": 100.0}


def test_shares_go_to_the_innermost_layer() -> None:
    """Who is at work, not who has called."""
    assert shares(STACKS) == {"engine": 60.0, "codec": 30.0, "waiting": 10.0}


def test_what_is_rare_counts_for_its_caller() -> None:
    """No time is lost, and there are fewer stacks."""
    rare = ("asyncio|asyncio", "engine|a", "engine|b")
    stacks = {("asyncio|asyncio", "engine|a"): 1_000.0, rare: 1.0}
    assert pruned(stacks) == {("asyncio|asyncio", "engine|a"): 1_001.0}


def test_stacks_are_drawn_as_wide_as_their_share(tmp_path: Path) -> None:
    """Well-formed, for light and dark, callers as wide as what they call, names escaped."""
    stacks = {";".join(stack): seconds / 10 for stack, seconds in STACKS.items()}
    name = "where the time goes, 100 at once, SQLite"
    contest = Contest(name, "%", [Entry("outlast: engine", [60.0])], stacks=stacks)
    [path] = draw({"profile": {"sqlite": {"contests": [as_json(contest)]}}}, tmp_path)
    assert path.name == "profile.svg"
    assert path.read_text(encoding="utf-8") == flame("Where the time goes", {name: stacks})
    root = ElementTree.parse(path).getroot()
    widths = {
        "".join(box.itertext()): float(box.get("width", ""))
        for box in root.iter(f"{SVG}rect")
        if box.find(f"{SVG}title") is not None
    }
    assert widths == {
        "asyncio (asyncio): 100.0 %": 935.5,
        "engine.drive: RunDriver.go (engine): 90.0 %": 841.9,
        "codecs.json: <encode> (codec): 30.0 %": 280.3,
        "waiting (waiting): 10.0 %": 93.1,
    }
    assert "prefers-color-scheme: dark" in "".join(root.itertext())


def test_a_tree_adds_up() -> None:
    """Time in a function itself and in what it calls."""
    root = tree({"a|a": 0.25, "a|a;b|b": 0.5, "": 0.25})
    assert root.share == 1.0
    assert root.inside["a|a"].share == 0.75
    assert root.inside["a|a"].inside["b|b"].share == 0.5
