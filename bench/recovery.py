"""What a crash costs: workflows in flight, `kill -9` half way, and how it goes on, next to DBOS.

500 ten-step workflows are under way in one process; a step takes 20 ms. When half of all steps have
begun, the process is killed, and another is started on the same data at once. Shown are the seconds
from the kill until all workflows are done, and how many steps were begun more than once: those that
were running may be, others never. On SQLite and PostgreSQL, in rounds that alternate.

Ours wait until nobody can hold the runs any more: PostgreSQL tells that their owner is gone, on SQLite
their lease (`--lease`, 5 s) has to end. DBOS takes up what its own executor id has left, without asking
whether that still lives.

    ./dev bench recovery [--rounds 3] [--only sqlite] [--workflows 500] [--lease 5] [--json FILE]

DBOS is installed from PyPI into an environment of its own under .cache/ (bench/_rival.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from bench._machine import load
from bench._pg_rivals import Server
from bench._recovering import STEPS
from bench._rival import REQUIREMENTS, ROOT, environment
from bench._table import Line, as_json, in_words
from tools.serving.postgres import Cluster

CACHE = ROOT / ".cache" / "bench"
PARTS = ("sqlite", "postgres")
PATIENCE = 600.0
LOOK = 0.01


class Crash(NamedTuple):
    """Seconds from the kill to the end of all, steps that were running at the kill at most (the last
    that each workflow had begun), steps that were begun again, and those of them that were not running."""

    seconds: float
    running: int
    repeated: int
    without_reason: int


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(prog="./dev bench recovery")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the rest out")
    parser.add_argument("--workflows", type=int, default=500)
    parser.add_argument("--lease", type=float, default=5.0)
    options = parser.parse_args(argv)
    print(f"load of the machine: {load()}; below 1, or the figures say little")
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    lines: list[Line] = []
    for part in options.only or PARTS:
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            found = _measure(part, Path(name), options)
        for line in found:
            print(in_words(line), flush=True)
        lines += found
    print(f"load of the machine: {load()}")
    if options.json:
        results = {line.name: as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(part: str, folder: Path, options: argparse.Namespace) -> list[Line]:
    count: int = options.workflows
    cluster, server = None, None
    if part == "postgres":
        folder.chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its own folder
        cluster = Cluster(folder)
        server = Server(cluster.url, folder, "recovery")
    dbos = environment("dbos", REQUIREMENTS)
    found: dict[str, list[Crash]] = {"ours": [], "DBOS": []}
    try:
        for number in range(options.rounds):
            for name, crashes in found.items():
                place = str(folder / f"{name}-{number}.db")
                if server is not None:
                    place = asyncio.run(server.database())
                ledger = folder / f"{name}-{number}.steps"
                command = [sys.executable, "-m", "bench._recovering"]
                extra = [str(options.lease)]
                if name == "DBOS":
                    command, extra = [str(dbos), str(ROOT / "bench/_dbos_recovering.py")], []
                crashes.append(_crash(command, place, ledger, count, extra))
    finally:
        if cluster is not None:
            cluster.stop()
    note = f"{count} workflows of {STEPS} steps, lease of {options.lease:g} s"
    return [
        Line(
            f"from kill -9 to the end of all, {part}, against DBOS",
            "s",
            [one.seconds for one in found["ours"]],
            [one.seconds for one in found["DBOS"]],
            "DBOS",
            at_most=True,
            note=note,
        ),
        Line(
            f"steps begun again, {part}, against DBOS",
            "steps",
            [float(one.repeated) for one in found["ours"]],
            [float(one.repeated) or 1.0 for one in found["DBOS"]],
            "DBOS",
            enough=float(count),
            at_most=True,
            note=f"{note}; {_running(found)}",
        ),
    ]


def _running(found: dict[str, list[Crash]]) -> str:
    """How many steps were running at the kill, and how many were begun again that were not."""
    told = [
        f"{name}: {one.running} were running, {one.without_reason} others were begun again"
        for name, crashes in found.items()
        for one in crashes
    ]
    return "; ".join(told)


def _crash(command: list[str], place: str, ledger: Path, count: int, extra: list[str]) -> Crash:
    """One life that is killed, and one that goes on."""
    ledger.touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    if command[0] == sys.executable:
        env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}

    def life(how: str) -> subprocess.Popen[bytes]:
        args = [*command, how, place, str(ledger), str(count), *extra]
        return subprocess.Popen(args, env=env, cwd=ROOT, stdout=subprocess.DEVNULL)

    first, pause = life("begin"), threading.Event()
    deadline = time.monotonic() + PATIENCE
    while _lines(ledger) < count * STEPS // 2:
        if first.poll() is not None or time.monotonic() > deadline:
            raise AssertionError("it ended before it was killed")
        pause.wait(LOOK)
    first.kill()
    killed = time.perf_counter()
    first.wait()
    last = dict(line.split() for line in ledger.read_text(encoding="utf-8").splitlines())
    second = life("resume")
    if second.wait(PATIENCE) != 0:
        raise AssertionError("what was left was not brought to its end")
    seconds = time.perf_counter() - killed
    begun = Counter(ledger.read_text(encoding="utf-8").splitlines())
    if len(begun) != count * STEPS:
        raise AssertionError(f"{len(begun)} of {count * STEPS} steps were done")
    again = {line: times - 1 for line, times in begun.items() if times > 1}
    idle = sum(
        times for line, times in again.items() if last.get(line.split()[0]) != line.split()[1]
    )
    return Crash(seconds, len(last), sum(again.values()), idle)


def _lines(ledger: Path) -> int:
    return ledger.read_bytes().count(b"\n")
