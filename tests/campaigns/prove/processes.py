"""Several processes on one SQLite file, at full size.

- claims: 1,000 runs claimed in bulk, and 1,000 tasks taken one by one, by four processes at once;
  none goes to two, none is left over. Several rounds, because races are a matter of luck.
- kills: 20,000 commits by four writers that are killed (`kill -9`) at random and replaced. Then the
  ledgers that the writers kept outside the store go to the history checker: nothing acknowledged is
  missing, nothing is there that nobody wrote, histories have no gaps, no stale claim has written;
  and `PRAGMA integrity_check` agrees.

    ./dev prove processes [--items 1000] [--rounds 5] [--commits 20000] [--seed 1]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.stores.sqlite_processes.claiming import claim_runs, take_tasks
from tests.stores.sqlite_processes.killing import write_and_kill

CLAIMERS = WRITERS = 4
RUNS = 200
BETWEEN = (20, 120)


def main(argv: list[str]) -> int:
    """Run both campaigns; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="./dev prove processes")
    parser.add_argument("--items", type=int, default=1_000, help="to be claimed in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    broken = _claims(options.items, options.rounds)
    broken += _kills(options.commits, options.seed)
    for problem in broken[:20]:
        print(f"  {problem}")
    return int(bool(broken))


def _claims(items: int, rounds: int) -> list[str]:
    broken = []
    for round in range(1, rounds + 1):
        for name, race in (("runs", claim_runs), ("tasks", take_tasks)):
            with tempfile.TemporaryDirectory() as folder:
                begun = time.monotonic()
                claims = race(f"{folder}/store.db", items=items, claimers=CLAIMERS)
                shares = ", ".join(str(len(got)) for got in claims.got)
                print(
                    f"round {round}: {items} {name} claimed by {CLAIMERS} processes ({shares}) "
                    f"in {time.monotonic() - begun:.1f} s: {len(claims.twice)} twice, "
                    f"{len(claims.missed)} missed",
                    flush=True,
                )
                broken += claims.problems()
    return broken


def _kills(commits: int, seed: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        outcome = write_and_kill(
            Path(folder), commits=commits, writers=WRITERS, runs=RUNS, between=BETWEEN, seed=seed
        )
        print(
            f"{outcome.acked:,} commits acknowledged ({outcome.unknown:,} more under way when "
            f"their writer died), {outcome.kills:,} kill -9, {outcome.claims:,} claims, "
            f"{outcome.events:,} events, {time.monotonic() - begun:.0f} s: "
            f"{len(outcome.violations)} violations",
            flush=True,
        )
    return outcome.violations
