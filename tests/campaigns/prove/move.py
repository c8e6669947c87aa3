"""Runs moved from SQLite to PostgreSQL to Redis and back to SQLite under load, the movers killed with
`kill -9` at random moments. The next round begins, and ends, on PostgreSQL, the one after on Redis.

A worker drives runs on each of the stores all the time, a client starts runs and signals them and is
told where they went; each mover is killed some time after it has begun, and the next one goes on.
`tests.unit.transfer.campaign` says what is checked in the end.

    ./dev prove move [--rounds 10] [--runs 60] [--kills 15] [--seed 1]

`kills` are of each of the three stages of a round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.unit.transfer.campaign import Campaign, travel
from tests.unit.transfer.places import clear, new_place

AGAIN = "import sys; from tests.campaigns.prove.move import main; sys.exit(main(sys.argv[1:]))"
ROAD = ("sqlite", "postgres", "redis")
"""A circle: runs come back to where they began, where somebody may remember them."""


def main(argv: list[str]) -> int:
    """Run the campaign; 1 if a promise was broken."""
    if not {"OUTLAST_TEST_POSTGRES", "OUTLAST_TEST_REDIS"} <= os.environ.keys():
        servers = [sys.executable, "-m", "tools.servers", "postgres", "redis", "--"]
        return subprocess.run(
            [*servers, sys.executable, "-c", AGAIN, *argv], check=False
        ).returncode
    parser = argparse.ArgumentParser(prog="./dev prove move")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--kills", type=int, default=15, help="of each stage")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    total: Counter[str] = Counter()
    for number in range(options.rounds):
        begun = time.monotonic()
        figures = asyncio.run(_round(options.seed + number, options.runs, options.kills))
        total.update(figures)
        shown = ", ".join(f"{value:,} {name}" for name, value in figures.items())
        took = time.monotonic() - begun
        print(f"seed {options.seed + number}: {shown}, {took:.0f} s", flush=True)
    print("in all: " + ", ".join(f"{value:,} {name}" for name, value in total.items()))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode({"move": dict(total)}))
    return int(total["broken promises"] > 0)


async def _round(seed: int, runs: int, kills: int) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        first = (seed - 1) % len(ROAD)
        places = [new_place(kind, Path(folder)) for kind in (*ROAD[first:], *ROAD[:first])]
        places.append(places[0])
        campaign = Campaign(places, Path(folder) / "ledger", seed, kills)
        try:
            await travel(campaign, runs=runs)
        finally:
            for place in set(places):
                await clear(place)
        for problem in campaign.broken[:20]:
            print(f"  {problem}")
        campaign.figures["broken promises"] = len(campaign.broken)
        return campaign.figures
