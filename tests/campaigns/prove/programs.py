"""Random workflow programs with random faults, judged by an independent model, by the hundred thousand.

Each seed is one program: steps of every kind, gathers, maps, children, scopes, loops, signals, updates,
halts, lives that continue as new; what is done to it from outside; and one to three faults: a worker
that dies, stands still or is not answered, a store that is busy or away, a clock that is set back. It runs in virtual time until
every run has ended, and `tests.campaigns.programs.model` says which promises were not kept. A program that fails
is made as small as possible and shown as Python.

    ./dev prove programs [--store memory|sqlite|postgres|redis] [--count 200000] [--seed 0]
                         [--only N] [--processes 2]

Seeds `seed` to `seed + count - 1` are run; `--only N` is one of them, with all that happened in it.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from tests.campaigns.programs.judging import STORES, fails_alike, judge, judge_seed, stores
from tests.campaigns.programs.program import Case
from tests.campaigns.programs.rendering import as_data, as_python
from tests.campaigns.programs.runner import Evidence
from tests.campaigns.programs.shrinking import smallest

SIZE = 100
SERVERS = {"postgres": "OUTLAST_TEST_POSTGRES", "redis": "OUTLAST_TEST_REDIS"}
MOST_SHRUNK = 10
"""So many programs of a campaign are made small: the first ones tell the most."""


class Failure(msgspec.Struct, frozen=True):
    """A seed whose program broke a promise."""

    seed: int
    found: list[str]


class Chunk(msgspec.Struct, frozen=True):
    """Some seeds, one after the other."""

    programs: int
    faulty: int
    faults: dict[str, int]
    acts: dict[str, int]
    bodies: int
    effects: int
    events: int
    failures: list[Failure]


def main(argv: list[str]) -> int:
    """Run the campaign; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="./dev prove programs")
    parser.add_argument("--store", choices=STORES, default="memory")
    parser.add_argument("--count", type=int, default=200_000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--only", type=int, help="show one program and what happened", metavar="N")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    variable = SERVERS.get(options.store)
    if variable is not None and variable not in os.environ:
        again = [
            sys.executable,
            "-c",
            "import sys; from tests.campaigns.prove.programs import main; ",
        ]
        again[-1] += "sys.exit(main(sys.argv[1:]))"
        servers = [sys.executable, "-m", "tools.servers", options.store, "--"]
        return subprocess.run([*servers, *again, *argv], check=False).returncode
    _be_quiet()
    if options.only is not None:
        return _show(options.store, options.only)
    return _campaign(options)


def _campaign(options: argparse.Namespace) -> int:
    begun = time.monotonic()
    starts = range(options.seed, options.seed + options.count, SIZE)
    end = options.seed + options.count
    wanted = [(options.store, start, min(SIZE, end - start)) for start in starts]
    chunks: list[Chunk] = []
    shrunk = 0
    with ProcessPoolExecutor(options.processes, initializer=_be_quiet) as pool:
        for chunk in pool.map(run_chunk, *zip(*wanted, strict=True)):
            chunks.append(chunk)
            for failure in chunk.failures:
                print(f"seed {failure.seed}: {failure.found[0]}", flush=True)
                if shrunk < MOST_SHRUNK:
                    shrunk += 1
                    _tell_smallest(options.store, failure)
            if len(chunks) % 20 == 0:
                seconds = time.monotonic() - begun
                done = sum(chunk.programs for chunk in chunks)
                bad = sum(len(chunk.failures) for chunk in chunks)
                rate = done / seconds
                print(f"{done:,} programs, {bad} fail, {rate:.0f} a second", flush=True)
    return _report(options, chunks, time.monotonic() - begun)


def run_chunk(store: str, start: int, size: int) -> Chunk:
    """Run some seeds."""
    faults: Counter[str] = Counter()
    acts: Counter[str] = Counter()
    faulty = bodies = effects = events = 0
    failures = []
    with stores(store, os.getpid()) as make:
        for seed in range(start, start + size):
            _, found, evidence = judge_seed(seed, make)
            if found:
                failures.append(Failure(seed, found))
            if evidence is not None:
                ledger = evidence.ledger
                faults.update(kind for kind, _, _ in ledger.faults)
                acts.update(told.do for told in ledger.told)
                faulty += bool(ledger.faults)
                bodies += len(ledger.bodies)
                effects += len(ledger.effects)
                events += len(ledger.recorded)
    return Chunk(size, faulty, dict(faults), dict(acts), bodies, effects, events, failures)


def _tell_smallest(store: str, failure: Failure) -> None:
    with stores(store) as make:
        case, found, _ = judge_seed(failure.seed, make)
        case = smallest(case, fails_alike(found or failure.found, failure.seed, make))
        found, _ = judge(case, failure.seed, make)
    _tell(case, found)
    print(f"./dev prove programs --store {store} --only {failure.seed}\n", flush=True)


def _tell(case: Case, found: list[str]) -> None:
    print(as_python(case))
    print(as_data(case))
    print(*(f"  {problem}" for problem in found), sep="\n", flush=True)


def _show(store: str, seed: int) -> int:
    with stores(store) as make:
        case, found, evidence = judge_seed(seed, make)
        if found:
            case = smallest(case, fails_alike(found, seed, make))
            found, evidence = judge(case, seed, make)
    _tell(case, found)
    if evidence is not None:
        print(*trace(evidence), sep="\n")
    return 1 if found else 0


def trace(evidence: Evidence) -> list[str]:
    """All that happened, in order."""
    ledger = evidence.ledger
    lines = [
        (one.tick, f"{one.time:8.3f} {one.run_id} {one.type} {one.key}") for one in ledger.recorded
    ]
    for body in ledger.bodies:
        what = "undoes" if body.undo else "does"
        lines.append((body.tick, f"{body.time:8.3f} {body.run_id} {what} {body.path}"))
        if body.end is not None:
            lines.append((body.ended, f"{body.ended_at:8.3f} {body.run_id} {body.path} {body.end}"))
    for told in ledger.told:
        lines.append((told.tick, f"{told.time:8.3f} {told.do} {told.run_id} {told.name}"))
        if told.done is not None:
            lines.append((told.done, f"         {told.do}: {told.error or told.answer}"))
    lines += [
        (one.tick, f"         code: {one.path} {one.kind} {one.value}") for one in ledger.seen
    ]
    shown = [line for _, line in sorted(lines)]
    shown += [f"{kind} at {when:g} for {seconds:g} s" for kind, when, seconds in ledger.faults]
    return shown + [f"{run.id}: {run.status} {run.error or ''}" for run in evidence.runs.values()]


def _report(options: argparse.Namespace, chunks: list[Chunk], seconds: float) -> int:
    failures = sum(len(chunk.failures) for chunk in chunks)
    faults = sum((Counter(chunk.faults) for chunk in chunks), Counter())
    acts = sum((Counter(chunk.acts) for chunk in chunks), Counter())
    figures = {
        "programs": sum(chunk.programs for chunk in chunks),
        "with a fault": sum(chunk.faulty for chunk in chunks),
        "faults": faults.total(),
        "acts": acts.total(),
        "bodies": sum(chunk.bodies for chunk in chunks),
        "effects": sum(chunk.effects for chunk in chunks),
        "events": sum(chunk.events for chunk in chunks),
        "violations": failures,
        "seconds": round(seconds),
    }
    print(f"{options.store}: " + ", ".join(f"{value:,} {name}" for name, value in figures.items()))
    print("faults: " + ", ".join(f"{value:,} {name}" for name, value in faults.most_common()))
    print("acts: " + ", ".join(f"{value:,} {name}" for name, value in acts.most_common()))
    if options.json is not None:
        told = {**figures, "by kind": dict(faults), "acts by kind": dict(acts)}
        options.json.write_bytes(msgspec.json.encode({f"programs {options.store}": told}))
    return 1 if failures else 0


def _be_quiet() -> None:
    """The log is full of what is done to the runs, and code that is evicted leaves coroutines."""
    logging.getLogger("outlast").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)
