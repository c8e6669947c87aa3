"""The engine, measured: steps a second, latencies, replay, long runs, sleeping runs.

Ten-step workflows run a hundred at once and one at a time, on memory and on SQLite, and the same
work runs in DBOS on SQLite. Rounds alternate between the contestants, so that a slow moment of the
machine hits all; a ratio is taken within each round, and the median over the rounds is shown with
its range. What a number was measured under (how durable it is) stands next to it. An aim that is
missed is told, not an error.

    ./dev bench engine [--rounds 5] [--only steps] [--sleepers 100000] [--no-dbos] [--json FILE]

DBOS is installed from PyPI into an environment of its own under .cache/ (bench/_rival.py); its side
of the work is bench/_dbos.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench._machine import load
from bench._replays import measure_length, measure_loops, measure_replay, measure_snapshots
from bench._rival import Rival
from bench._table import Line, as_json, in_words
from bench._ten import measure_steps

CACHE = Path(__file__).parents[1] / ".cache" / "bench"
PARTS = ("steps", "replay", "snapshots", "loops", "length", "sleepers")
MIB = 2**20


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(prog="./dev bench engine")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the rest out")
    parser.add_argument("--sleepers", type=int, default=100_000, help="runs to put to sleep")
    parser.add_argument("--no-dbos", action="store_true", help="measure outlast alone")
    options = parser.parse_args(argv)
    print(f"load of the machine: {load()}; below 1, or the figures say little")
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        for part in options.only or PARTS:
            found = asyncio.run(_measure(part, Path(folder), options))
            for line in found:
                print(in_words(line), flush=True)
            lines += found
    print(f"load of the machine: {load()}")
    if options.json:
        results = {line.name: as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


async def _measure(part: str, folder: Path, options: argparse.Namespace) -> list[Line]:
    rounds: int = options.rounds
    match part:
        case "steps":
            rival = None if options.no_dbos else Rival(folder)
            return await measure_steps(folder, rounds, rival)
        case "replay":
            return await measure_replay(folder, rounds)
        case "snapshots":
            return await measure_snapshots(folder, rounds)
        case "loops":
            return await measure_loops(folder, rounds)
        case "length":
            return await measure_length(rounds)
        case _:
            return _sleepers(folder, options.sleepers)


def _sleepers(folder: Path, count: int) -> list[Line]:
    """Memory that so many sleeping runs hold, see bench/_sleepers.py."""
    command = [sys.executable, "-m", "bench._sleepers", str(folder), str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    growth = (found["after"] - found["before"]) / MIB
    return [
        Line(f"memory of {count:,} sleeping runs", "MiB", [growth], enough=100, at_most=True),
        Line("runs put to sleep", "runs/s", [count / found["seconds"]]),
    ]
