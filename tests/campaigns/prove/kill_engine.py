"""An engine on SQLite that is killed with `kill -9`, 200 times, while workflows of every kind run.

Sequential steps, retries, maps, timers, signals, children, compensation, loops, branches, lives
that continue as new, and a plain synchronous workflow: two of each are under way at a time. The
process is killed at random moments, a tenth of them while it opens the file, and started again. What
bodies of steps did and what the client was told stand in two ledgers outside the store; in the end
`tests.campaigns.engine_kills.verdict` compares them with everything that the store holds.

    ./dev prove kill_engine [--kills 200] [--rounds 4] [--seed 1] [--longest 2.0]

The kills are spread over rounds, each with a store and a seed of its own. The seed gives the lengths
of the lives, which differ in residency (snapshots and evictions at every commit); what happens in them is up to the machine.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec

from tests.campaigns.engine_kills.killing import Evidence, kill_again_and_again
from tests.campaigns.engine_kills.verdict import executions, given_up, judge

KEPT = Path(__file__).parents[3] / ".cache" / "prove" / "kill_engine"


def main(argv: list[str]) -> int:
    """Run the campaign; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="./dev prove kill_engine")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--longest", type=float, default=2.0, help="seconds of the longest life")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    total = Counter[str]()
    for number in range(options.rounds):
        kills = (options.kills * (number + 1)) // options.rounds - total["kills"]
        figures, broken = _round(kills, options.seed + number, options.longest)
        total.update(figures)
        for problem in broken[:20]:
            print(f"  {problem}")
    print(f"in all: {_shown(total)}")
    if not total["cut off"]:
        print("no body was cut off, so this says little: give it more --kills")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode({"kill_engine": dict(total)}))
    return int(total["broken promises"] > 0)


def _round(kills: int, seed: int, longest: float) -> tuple[Counter[str], list[str]]:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        evidence = kill_again_and_again(Path(folder), kills=kills, seed=seed, longest=longest)
        broken = judge(evidence)
        if broken:
            shutil.copytree(folder, KEPT / str(seed), dirs_exist_ok=True)
            print(f"store and ledgers are kept in {KEPT / str(seed)}")
    figures = Counter({"kills": kills, **figures_of(evidence), "broken promises": len(broken)})
    print(f"seed {seed}: {_shown(figures)}, {time.monotonic() - begun:.0f} s", flush=True)
    return figures, broken


def figures_of(evidence: Evidence) -> dict[str, int]:
    """What a campaign went through."""
    bodies = executions(evidence.effects)
    lives: dict[tuple[str, str, str], set[int]] = {}
    for one in evidence.effects:
        lives.setdefault((one.run_id, one.uid, one.key), set()).add(one.life)
    told = Counter(one.what for one in evidence.told)
    return {
        "runs": len(evidence.final.runs),
        "events": sum(len(dumped.events) for dumped in evidence.final.runs.values()),
        "bodies": len(bodies),
        "cut off": sum(one.ended is None for one in bodies),
        "steps begun in more than one life": sum(len(found) > 1 for found in lives.values()),
        "starts repeated": told["starting"] - told["started"],
        "signals repeated": told["sending"] - told["sent"],
        "given up": sum(given_up(dumped) for dumped in evidence.final.runs.values()),
    }


def _shown(figures: Counter[str]) -> str:
    return ", ".join(f"{figures[name]:,} {name}" for name in figures)
