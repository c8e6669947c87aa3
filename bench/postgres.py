"""PostgreSQL, measured on one server of our own with its durability as it comes.

appends    the store next to bare inserts of the same rows, a hundred in a transaction: the ceiling
steps      ten-step workflows, a hundred at once and one at a time, next to DBOS on the same server,
           and all transactions that the database has seen for a step
jobs       ten thousand tiny jobs, next to procrastinate and a bare loop of SKIP LOCKED
workers    steps a second of 1, 2 and 4 processes

Rounds alternate between the contestants, so that a slow moment of the machine hits all; a ratio is
taken within each round, and the median over the rounds is shown with its range. Each has a new
database. An aim that is missed is told, not an error.

    ./dev bench postgres [--rounds 5] [--only appends] [--alone] [--json FILE]

Others are installed from PyPI into environments of their own under .cache/ (bench/_rival.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path

from bench._machine import load
from bench._pg_appends import measure_appends
from bench._pg_jobs import measure_jobs
from bench._pg_rivals import Server
from bench._pg_steps import measure_steps, measure_workers
from bench._table import Line, as_json, in_words
from tools.serving.postgres import Cluster

CACHE = Path(__file__).parents[1] / ".cache" / "bench"
PARTS = ("appends", "steps", "jobs", "workers")


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(prog="./dev bench postgres")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the rest out")
    parser.add_argument("--alone", action="store_true", help="without DBOS and procrastinate")
    options = parser.parse_args(argv)
    print(f"load of the machine: {load()}; below 1, or the figures say little")
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its own folder
        cluster = Cluster(folder)
        try:
            for part in options.only or PARTS:
                server = Server(cluster.url, folder, part)
                found = asyncio.run(_measure(part, server, options))
                for line in found:
                    print(in_words(line), flush=True)
                lines += found
        finally:
            cluster.stop()
    print(f"load of the machine: {load()}")
    if options.json:
        results = {line.name: as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


async def _measure(part: str, server: Server, options: argparse.Namespace) -> list[Line]:
    rounds: int = options.rounds
    alone: bool = options.alone
    match part:
        case "appends":
            return await measure_appends(server, rounds)
        case "steps":
            return await measure_steps(server, rounds, alone=alone)
        case "jobs":
            return await measure_jobs(server, rounds, alone=alone)
        case _:
            return await measure_workers(server, rounds)
