"""A PostgreSQL server that is ended without mercy and started again, 50 times, while workflows run.

Workflows of every kind run in one process (`tests.campaigns.engine_kills.workflows`, two of each at a time) on a
server with its durability as it comes. At random moments, in turn,

- all its processes are killed with `kill -9`, and it is started again;
- it is told to shut down immediately, and started again;
- one of its workers is killed with `kill -9`: it cuts all connections and recovers by itself.

Now and then it stays away for longer than a lease. Nothing that was acknowledged may be missing,
nothing may run again after it was recorded, and everything has to come to its end.

    ./dev prove postgres_kills [--cycles 50] [--seed 1] [--longest 2.0]
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from outlast.stores.postgres import PostgresStore
from outlast.testkit.checker import dump
from tests.campaigns.engine_kills.killing import Evidence
from tests.campaigns.engine_kills.ledgers import Effect, Told, read
from tests.campaigns.engine_kills.verdict import judge
from tests.campaigns.prove import _redis_life
from tests.campaigns.prove._redis_life import LEASE, figures_of
from tests.stores.sqlite_processes.crew import pause_for
from tools.serving.postgres import Cluster

KEPT = Path(__file__).parents[3] / ".cache" / "prove" / "postgres_kills"
WAYS = ("kill -9", "immediate shutdown", "kill -9 of one worker")


class Load(_redis_life.Load):
    """The process that runs workflows, from outside."""

    async def _collect(self) -> Evidence:
        async with PostgresStore(self._url, notify=False) as store:
            final = await dump(store)
        told = read(self._folder / "told", Told)
        return Evidence(told, read(self._folder / "effects", Effect), final, [])


def main(argv: list[str]) -> int:
    """Run the campaign; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="./dev prove postgres_kills")
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=2.0, help="seconds between two ends")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its own folder
        figures, broken = _campaign(folder, options.cycles, options.seed, options.longest)
        if broken:
            KEPT.mkdir(parents=True, exist_ok=True)
            for ledger in ("told", "effects"):
                shutil.copy(folder / ledger, KEPT / f"{options.seed}-{ledger}")
            print(f"ledgers are kept in {KEPT}")
    shown = ", ".join(f"{count:,} {what}" for what, count in figures.items())
    print(f"seed {options.seed}: {shown}, {time.monotonic() - begun:.0f} s")
    for problem in broken[:20]:
        print(f"  {problem}")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode({"postgres_kills": figures}))
    return int(bool(broken))


def _campaign(
    folder: Path, cycles: int, seed: int, longest: float
) -> tuple[dict[str, int], list[str]]:
    chance, did = random.Random(seed), Counter[str]()
    cluster = Cluster(folder)
    load = Load(cluster.url, folder)
    try:
        for number in range(cycles):
            load.watch(chance.uniform(0.1, longest))
            way = WAYS[number % len(WAYS)]
            did[way] += 1
            _end(cluster, way, away=1.5 * LEASE if chance.random() < 0.1 else 0.0)
            print(f"\r{number + 1} of {cycles}", end="", flush=True)
        print()
        evidence = load.finish()
    finally:
        load.kill()
        cluster.stop()
    broken = judge(evidence)
    return {**did, **figures_of(evidence), "broken promises": len(broken)}, broken


def _end(cluster: Cluster, way: str, *, away: float) -> None:
    if way == WAYS[2]:
        cluster.kill_one()
        return
    if way == WAYS[0]:
        cluster.kill()
    else:
        cluster.stop_at_once()
    pause_for(away)
    cluster.start()
