"""The model machine at length: stores against the memory store, tens of thousands of sequences.

Sequences come in chunks, each with a number that seeds it: a chunk that failed can be repeated, and
one that is done is not. A difference is shrunk and printed as code, and the campaign goes on.

    ./dev prove machine [--sequences 20000] [--steps 50] [--store sqlite] [--chunk NUMBER]

What is done is kept in .cache/prove/ and not repeated, so a campaign can be interrupted. `--fresh`
begins again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import msgspec

from outlast.testkit.stateful import Rules, store_machine
from tests.unit.testkit.stateful.stores import ON_TRIAL

STATE = Path(__file__).parents[3] / ".cache" / "prove" / "machine.json"
SIZE = 100


class Chunk(msgspec.Struct, frozen=True):
    """A hundred sequences. `difference` is empty if the stores agreed."""

    store: str
    number: int
    steps: int
    calls: int
    seconds: float
    difference: str = ""


def main(argv: list[str]) -> int:
    """Run what is missing of the campaign and report all of it; 1 if two stores differ."""
    parser = argparse.ArgumentParser(prog="./dev prove machine")
    parser.add_argument("--sequences", type=int, default=20_000, help="how many for each store")
    parser.add_argument("--steps", type=int, default=50, help="length of each")
    parser.add_argument("--store", choices=ON_TRIAL, action="append", help="only this one")
    parser.add_argument("--chunk", type=int, help="run one chunk again and keep nothing")
    parser.add_argument("--fresh", action="store_true", help="forget what was done before")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(argv)
    names = options.store or list(ON_TRIAL)
    if options.chunk is not None:
        found = [run_chunk(name, options.chunk, options.steps) for name in names]
        return _report(found, options.json)
    if options.fresh:
        STATE.unlink(missing_ok=True)
    done = _load()
    wanted = -(-options.sequences // SIZE)
    for name in names:
        known = {one.number for one in done if (one.store, one.steps) == (name, options.steps)}
        for number in range(wanted):
            if number not in known:
                done.append(run_chunk(name, number, options.steps))
                _save(done)
                _tell(done[-1], wanted)
    return _report([one for one in done if one.store in names], options.json)


def run_chunk(store: str, number: int, steps: int) -> Chunk:
    """A hundred sequences that this number seeds."""
    case = store_machine(
        ON_TRIAL[store],
        max_examples=SIZE,
        steps=steps,
        seeded=number,
        database=None,
    )
    before, begun, difference = Rules.compared, time.monotonic(), ""
    try:
        case("runTest").debug()
    except AssertionError as error:
        notes = getattr(error, "__notes__", [])
        difference = "\n".join([str(error), *notes])
    seconds = time.monotonic() - begun
    return Chunk(store, number, steps, Rules.compared - before, round(seconds, 1), difference)


def _tell(chunk: Chunk, wanted: int) -> None:
    verdict = "DIFFERS" if chunk.difference else "agrees"
    print(
        f"{chunk.store} chunk {chunk.number + 1}/{wanted}: {verdict}, {chunk.calls:,} comparisons "
        f"in {chunk.seconds:.0f} s",
        flush=True,
    )
    if chunk.difference:
        print(f"{chunk.difference}\nagain: ./dev prove machine --chunk {chunk.number}", flush=True)


def _report(chunks: list[Chunk], target: Path | None) -> int:
    figures = {}
    for name in sorted({chunk.store for chunk in chunks}):
        own = [chunk for chunk in chunks if chunk.store == name]
        differ = [chunk.number for chunk in own if chunk.difference]
        calls = sum(chunk.calls for chunk in own)
        figures[f"machine_{name}"] = {
            "sequences": len(own) * SIZE,
            "comparisons": calls,
            "differences": len(differ),
        }
        print(
            f"{name}: {len(own) * SIZE:,} sequences, {calls:,} comparisons, "
            f"{len(differ)} differences {differ or ''}"
        )
    if target is not None:
        target.write_bytes(msgspec.json.encode(figures))
    return 1 if any(chunk.difference for chunk in chunks) else 0


def _load() -> list[Chunk]:
    return msgspec.json.decode(STATE.read_bytes(), type=list[Chunk]) if STATE.exists() else []


def _save(chunks: list[Chunk]) -> None:
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_bytes(msgspec.json.encode(chunks))
