"""A Redis server that is killed with `kill -9` and started again, 50 times, while workflows run on it.

Workflows of every kind run in one process (`tests.campaigns.engine_kills.workflows`, two of each at a time). The
server has `appendfsync always`. It is killed at random moments and comes back with what its file has;
now and then it stays away for longer than a lease. Nothing that was acknowledged may be missing, nothing
may run again after it was recorded, and everything has to come to its end.

    ./dev prove redis_kills [--kills 50] [--seed 1] [--longest 2.0]
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from tests.campaigns.engine_kills.verdict import judge
from tests.campaigns.prove._redis_life import LEASE, Load, figures_of
from tests.stores.sqlite_processes.crew import pause_for
from tools.serving.redis import start_own

KEPT = Path(__file__).parents[3] / ".cache" / "prove" / "redis_kills"


def main(argv: list[str]) -> int:
    """Run the campaign; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="./dev prove redis_kills")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=2.0, help="seconds between two kills")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures, broken = _campaign(folder, options.kills, options.seed, options.longest)
        if broken:
            shutil.copytree(folder, KEPT / str(options.seed), dirs_exist_ok=True)
            print(f"ledgers and the server's file are kept in {KEPT / str(options.seed)}")
    shown = ", ".join(f"{count:,} {what}" for what, count in figures.items())
    print(f"seed {options.seed}: {shown}, {time.monotonic() - begun:.0f} s")
    for problem in broken[:20]:
        print(f"  {problem}")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode({"redis_kills": figures}))
    return int(bool(broken))


def _campaign(
    folder: Path, kills: int, seed: int, longest: float
) -> tuple[dict[str, int], list[str]]:
    chance = random.Random(seed)
    url, server = start_own(folder)
    port = urlsplit(url).port or 0
    load = Load(url, folder)
    try:
        for number in range(kills):
            load.watch(chance.uniform(0.1, longest))
            server.kill()
            if chance.random() < 0.1:
                pause_for(1.5 * LEASE)
            _, server = start_own(folder, port)
            print(f"\rkill {number + 1} of {kills}", end="", flush=True)
        print()
        evidence = load.finish()
    finally:
        load.kill()
        server.stop()
    broken = judge(evidence)
    return {"kills": kills, **figures_of(evidence), "broken promises": len(broken)}, broken
