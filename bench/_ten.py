"""Ten-step workflows, a hundred at once and one at a time, next to the same in DBOS."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

import outlast
from bench._rival import Rival, Round
from bench._table import Line, made_ready
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore

STEPS = 10
AT_ONCE = 100
BATCHES = 5  # of ours in a round: one would be over in a few hundredths of a second
ALONE = 20
OURS = ("memory", "SQLite")
DBOS = {"default": "DBOS as it comes", "wal": "DBOS in WAL mode"}
FASTER, SOONER = 50.0, 0.25


@outlast.step
async def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


@outlast.workflow
async def ten_steps(number: int) -> int:
    """Ten steps in a row."""
    for _ in range(STEPS):
        number = await increase(number)
    return number


async def measure_steps(folder: Path, rounds: int, rival: Rival | None) -> list[Line]:
    """Steps a second, latencies and commits. Rounds alternate between all contestants."""
    found: dict[tuple[str, str], list[Round]] = {}
    commits: list[float] = []
    for number in range(rounds):
        for how in ("together", "alone"):
            for name in OURS:
                store = (
                    MemoryStore() if name == "memory" else SqliteStore(folder / f"{number}{how}.db")
                )
                found.setdefault((name, how), []).append(await _round(store, how, commits))
            for mode, name in DBOS.items() if rival else ():
                count = AT_ONCE if how == "together" else ALONE
                assert rival is not None
                result = await asyncio.to_thread(rival.measure, mode, how, count)
                found.setdefault((name, how), []).append(result)
    lines = [
        Line(
            f"commits of a run of {STEPS} steps",
            "commits",
            commits,
            enough=STEPS + 1,
            at_most=True,
        )
    ]
    for how, title in (("together", f"{AT_ONCE} at once"), ("alone", "one at a time")):
        for name in OURS:
            ours = found[name, how]
            lines += in_lines(f"{title}, {name}", ours, None, "")
        for theirs in DBOS.values() if rival else ():
            title_of_pair = f"{title}, SQLite against {theirs}"
            lines += in_lines(title_of_pair, found["SQLite", how], found[theirs, how], how)
    return lines


async def _round(store: MemoryStore | SqliteStore, how: str, commits: list[float]) -> Round:
    async with store, outlast.App(store, workflows=[ten_steps]) as app:
        settings = "not durable"
        if isinstance(store, SqliteStore):
            known = store.describe()
            settings = (
                f"SQLite {known['sqlite_version']}, journal {known['journal_mode']}, synchronous="
                f"{str(known['synchronous']).upper()}"
            )
        await timed(app)
        latencies: list[float] = []
        with made_ready():
            begun = time.perf_counter()
            if how == "together":
                for _ in range(BATCHES):
                    latencies += await asyncio.gather(*(timed(app) for _ in range(AT_ONCE)))
            else:
                for _ in range(ALONE):
                    latencies.append(await timed(app))
            seconds = time.perf_counter() - begun
        # A record's revision grows with every commit of its run, and with nothing else.
        commits += [float(run.revision) async for run in app.find()]
        return Round(seconds, latencies, settings)


async def timed(app: outlast.App) -> float:
    """The seconds that one workflow takes from its start to its result."""
    begun = time.perf_counter()
    run = await app.start(ten_steps, 1)
    if await run.result() != 1 + STEPS:
        raise AssertionError("a wrong result")
    return time.perf_counter() - begun


def in_lines(name: str, ours: list[Round], theirs: list[Round] | None, how: str) -> list[Line]:
    """Speed and latencies of a pair, with the aims for doing it together or alone."""
    note = ours[0].settings + (f"; theirs: {theirs[0].settings}" if theirs else "")
    speed = [_speed(one) for one in ours]
    lines = [
        Line(
            name,
            "steps/s",
            speed,
            [_speed(one) for one in theirs] if theirs else None,
            "theirs",
            FASTER if how == "together" else None,
            note=note,
        )
    ]
    lines += [
        Line(
            f"{name}, p{part} of a workflow",
            "ms",
            [_percentile(one, part) for one in ours],
            [_percentile(one, part) for one in theirs] if theirs else None,
            "theirs",
            SOONER if how == "alone" else None,
            at_most=True,
            note=note,
        )
        for part in (50, 95)
    ]
    return lines


def _speed(round: Round) -> float:
    return len(round.latencies) * STEPS / round.seconds


def _percentile(round: Round, part: int) -> float:
    return statistics.quantiles(round.latencies, n=100, method="inclusive")[part - 1] * 1000
