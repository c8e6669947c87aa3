"""Workers by the handful on one store, and everything that can happen to them, for 20,000 runs.

Four to eight `outlast worker` processes run workflows of every kind that a client begins: steps one after
the other, retries, maps, timers, signals, updates, children, compensation, loops, lives that continue as
new, plain synchronous code, steps on a queue, steps that must not be repeated, runs that are cancelled.
Meanwhile workers are killed with `kill -9`, stopped past their lease and let go on, and told to stop; a
step holds the interpreter past the lease; clocks are set an hour off (libfaketime); the server is ended
without mercy and started again; connections are cut in the middle of a message; a worker is parted from
the server by a proxy, and by pulling out the wire of its own network, where root can make one; the file is locked by somebody else; SQS loses messages, or does not answer. In the end everything has to come to its end, and
`tests.campaigns.chaos.verdict` compares what clients were told, what bodies did and every call of the store with
all that the store holds.

    ./dev chaos [BACKEND ...] [--runs 20000] [--faults 500] [--seed 1] [--minutes 0]

Workers differ in residency: some write snapshots, or evict runs, at every commit. Backends: sqlite, postgres, redis, postgres+sqs (workers hear of work by SQS alone); all, if none is named. Runs and faults are of each. They are spread over
rounds, each with a store and a seed of its own. What is left of a round in which a promise was broken is
kept in `.cache/prove/chaos/`. The seed gives what is done to whom and when; the rest is up to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.campaigns.chaos.network import Network
from tests.campaigns.chaos.places import PLACES
from tests.campaigns.chaos.report import Tally, keep
from tests.campaigns.chaos.round import Round
from tests.campaigns.chaos.verdict import judge
from tests.campaigns.chaos.workers import Clockwork
from tests.campaigns.chaos.workflows import LEASE
from tools.serving.system import stop_all

KEPT = Path(__file__).parents[3] / ".cache" / "prove" / "chaos"
RUNS_A_ROUND = 1000
CLOCKS = 5
"""In one round of so many clocks can be set: everything costs twice as much then."""


def main(argv: list[str]) -> int:
    """Run the campaign; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="./dev chaos")
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help=", ".join(PLACES))
    parser.add_argument("--runs", type=int, default=20_000, help="of each backend")
    parser.add_argument("--faults", type=int, default=500, help="of each backend")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--minutes", type=float, default=0, help="begin no round after so many")
    parser.add_argument("--workers", type=int, default=5, choices=range(4, 9))
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    unknown = [name for name in options.backends if name not in PLACES]
    if unknown:
        parser.error(f"there is no backend {unknown[0]!r}; there are {', '.join(PLACES)}")
    if Clockwork.library() is None:
        print("libfaketime cannot be had here: no clock is set")
    if Network.missing() is not None:
        print(f"no worker has a network of its own, a proxy parts it alone: {Network.missing()}")
    # However we end, those we have started end with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    figures = {}
    try:
        for name in options.backends or PLACES:
            tally = _campaign(name, options)
            print(f"{name}, in all: {tally}", flush=True)
            figures[name] = tally.figures()
    finally:
        stop_all()
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode({"chaos": figures}))
    return int(any(one["broken promises"] for one in figures.values()))


def _campaign(name: str, options: argparse.Namespace) -> Tally:
    tally, end = Tally(LEASE), time.monotonic() + 60 * options.minutes
    seed = options.seed
    rounds = max(1, round(options.runs / RUNS_A_ROUND))
    for number in range(rounds):
        if options.minutes and time.monotonic() > end:
            print(f"{name}: stopped after {options.minutes:g} minutes")
            break
        faults = options.faults * (number + 1) // rounds - options.faults * number // rounds
        runs = options.runs * (number + 1) // rounds - options.runs * number // rounds
        clocks = number % CLOCKS == 0
        tally.add(_round(name, seed + number, runs, faults, options.workers, clocks=clocks))
    return tally


def _round(name: str, seed: int, runs: int, faults: int, workers: int, *, clocks: bool) -> Tally:
    with tempfile.TemporaryDirectory(prefix="outlast-chaos-") as place:
        folder = Path(place)
        folder.chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its own folder

        async def play() -> Tally:
            one = Round(PLACES[name], folder, seed, workers=workers, clocks=clocks)
            left = await one.play(runs=runs, faults=faults)
            broken = judge(left)
            if broken:
                keep(folder, KEPT / f"{seed}-{name}", left, broken)
                print(f"what is left is kept in {KEPT / f'{seed}-{name}'}")
            tally = Tally(LEASE)
            tally.count(left, broken)
            return tally

        tally = asyncio.run(play())
    print(f"{name}, seed {seed}: {tally}", flush=True)
    for problem, times in Counter(tally.broken).most_common(20):
        print(f"  {problem}" + (f" ({times} times)" if times > 1 else ""), flush=True)
    return tally
