"""The corpus in bad weather, tens of thousands of times: crashes, zombies, lost and doubled calls.

Each seed is one tiny workflow of the corpus in the weather that the seed makes, in turn as it is, with
a snapshot at every commit, with an eviction at every commit, and with both. A seed that fails
is simulated again, to see that it fails in the same way to the letter.

    ./dev prove simulation [--seeds 20000] [--start 0] [--case NAME] [--trace SEED]

What is done is kept in .cache/prove/ and not repeated, so a campaign can be interrupted. `--fresh`
begins again. `--trace` shows all that happens in one seed.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path

import msgspec

from outlast.testkit.simulation import SimulationResult
from tests.unit.testing.storm import case_of, cases, residency_of, storm

STATE = Path(__file__).parents[3] / ".cache" / "prove" / "simulation.json"
SIZE = 500


class Failure(msgspec.Struct, frozen=True):
    """A seed in which something went wrong."""

    seed: int
    case: str
    digest: str
    repeats: bool
    found: list[str]


class Chunk(msgspec.Struct, frozen=True):
    """Some seeds, one after the other, and what they had to live through."""

    start: int
    size: int
    case: str
    crashes: int
    pauses: int
    faults: int
    seconds: float
    failures: list[Failure] = []


def main(argv: list[str]) -> int:
    """Run what is missing of the campaign and report all of it; 1 if a seed fails."""
    parser = argparse.ArgumentParser(prog="./dev prove simulation")
    parser.add_argument("--seeds", type=int, default=20_000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--case", choices=cases(), help="only this workflow", metavar="NAME")
    parser.add_argument("--trace", type=int, help="show one seed and keep nothing", metavar="SEED")
    parser.add_argument("--fresh", action="store_true", help="forget what was done before")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    logging.getLogger("outlast").setLevel(logging.CRITICAL)  # it is full of what we do to it
    if options.trace is not None:
        return _show(options.trace, options.case)
    if options.fresh:
        STATE.unlink(missing_ok=True)
    done = _load()
    known = {(one.start, one.size, one.case) for one in done}
    wanted = [
        (start, min(SIZE, options.start + options.seeds - start), options.case or "")
        for start in range(options.start, options.start + options.seeds, SIZE)
    ]
    for start, size, case in wanted:
        if (start, size, case) not in known:
            done.append(run_chunk(start, size, case))
            _save(done)
            _tell(done[-1])
    return _report([one for one in done if (one.start, one.size, one.case) in wanted], options.json)


def run_chunk(start: int, size: int, case: str) -> Chunk:
    """Simulate some seeds."""
    crashes = pauses = faults = 0
    failures = []
    begun = time.monotonic()
    for seed in range(start, start + size):
        simulated = run_seed(seed, case)
        crashes += simulated.crashes
        pauses += simulated.pauses
        faults += simulated.faults
        if simulated.violations or simulated.differences:
            failures.append(
                Failure(
                    seed=seed,
                    case=case or case_of(seed),
                    digest=simulated.digest,
                    repeats=run_seed(seed, case).digest == simulated.digest,
                    found=simulated.violations + simulated.differences,
                )
            )
    seconds = round(time.monotonic() - begun, 1)
    return Chunk(start, size, case, crashes, pauses, faults, seconds, failures)


def run_seed(seed: int, case: str = "") -> SimulationResult:
    """Simulate one seed: the case is the one asked for, or each in turn."""
    return storm(case or case_of(seed), seed, residency=residency_of(seed))


def _show(seed: int, case: str | None) -> int:
    simulated = run_seed(seed, case or "")
    print(*simulated.trace, sep="\n")
    print(f"trace {simulated.digest}, {simulated.crashes} crashes, {simulated.pauses} pauses")
    print(*simulated.violations, *simulated.differences, sep="\n")
    return 1 if simulated.violations or simulated.differences else 0


def _tell(chunk: Chunk) -> None:
    verdict = f"{len(chunk.failures)} FAIL" if chunk.failures else "all well"
    last = chunk.start + chunk.size - 1
    print(f"seeds {chunk.start} to {last}: {verdict}, {chunk.seconds:.0f} s", flush=True)
    for failure in chunk.failures:
        exactly = "again exactly" if failure.repeats else "NOT REPEATABLE"
        print(f"  {failure.seed} {failure.case} {failure.digest} {exactly}", flush=True)
        print(*(f"    {line}" for line in failure.found), sep="\n", flush=True)
        only = f" --case {failure.case}" if chunk.case else ""
        print(f"    ./dev prove simulation --trace {failure.seed}{only}", flush=True)


def _report(chunks: list[Chunk], target: Path | None) -> int:
    failed = sum(len(chunk.failures) for chunk in chunks)
    figures = {
        "seeds": sum(chunk.size for chunk in chunks),
        "crashes": sum(chunk.crashes for chunk in chunks),
        "pauses": sum(chunk.pauses for chunk in chunks),
        "faults": sum(chunk.faults for chunk in chunks),
        "failures": failed,
    }
    print(", ".join(f"{value:,} {name}" for name, value in figures.items()))
    if target is not None:
        target.write_bytes(msgspec.json.encode({"simulation": figures}))
    return 1 if failed else 0


def _load() -> list[Chunk]:
    return msgspec.json.decode(STATE.read_bytes(), type=list[Chunk]) if STATE.exists() else []


def _save(chunks: list[Chunk]) -> None:
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_bytes(msgspec.json.encode(chunks))
