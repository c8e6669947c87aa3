"""Ten-step workflows on PostgreSQL, a hundred at once and one at a time, next to the same in DBOS."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

import outlast
from bench._pg_rivals import Server
from bench._rival import Round
from bench._table import Line, made_ready
from bench._ten import ALONE, AT_ONCE, STEPS, in_lines, ten_steps, timed
from outlast.stores.postgres import PostgresStore

BATCHES = 3
WORKERS = (1, 2, 4)
MOST_TOGETHER = 0.1


async def measure_steps(server: Server, rounds: int, *, alone: bool) -> list[Line]:
    """Steps a second, latencies, transactions. Rounds alternate between the contestants."""
    ours: dict[str, list[Round]] = {}
    theirs: dict[str, list[Round]] = {}
    transactions: dict[str, list[float]] = {}
    for _ in range(rounds):
        for how in ("together", "alone"):
            url = await server.database()
            result = await run_steps(url, how, await server.settings())
            ours.setdefault(how, []).append(result)
            count = len(result.latencies) * STEPS
            transactions.setdefault(how, []).append(await server.transactions(url) / count)
            if not alone:
                url = await server.database()
                number = AT_ONCE if how == "together" else ALONE
                told = await asyncio.to_thread(server.dbos, url, how, number)
                theirs.setdefault(how, []).append(told)
                of_theirs = await server.transactions(url) / (number * STEPS)
                transactions.setdefault(f"{how}, DBOS", []).append(of_theirs)
    lines: list[Line] = []
    for how, title in (("together", f"{AT_ONCE} at once"), ("alone", "one at a time")):
        lines += in_lines(f"{title}, PostgreSQL against DBOS", ours[how], theirs.get(how), how)
        lines.append(
            Line(
                f"{title}, PostgreSQL, all transactions of the database for a step",
                "transactions",
                transactions[how],
                transactions.get(f"{how}, DBOS"),
                "DBOS",
                enough=MOST_TOGETHER if how == "together" else None,
                at_most=True,
            )
        )
    return lines


async def run_steps(url: str, how: str, settings: str, batches: int = BATCHES) -> Round:
    """One round of ours."""
    async with PostgresStore(url) as store, outlast.App(store, workflows=[ten_steps]) as app:
        await timed(app)
        latencies: list[float] = []
        with made_ready():
            begun = time.perf_counter()
            if how == "together":
                for _ in range(batches):
                    latencies += await asyncio.gather(*(timed(app) for _ in range(AT_ONCE)))
            else:
                for _ in range(ALONE):
                    latencies.append(await timed(app))
            seconds = time.perf_counter() - begun
        return Round(seconds, latencies, settings)


async def measure_workers(server: Server, rounds: int) -> list[Line]:
    """Steps a second of several processes on one database."""
    found: dict[int, list[float]] = {number: [] for number in WORKERS}
    for _ in range(rounds):
        for number in WORKERS:
            url = await server.database()
            async with PostgresStore(url, notify=False):
                pass  # the tables are there
            speeds = await asyncio.gather(*(asyncio.to_thread(_worker, url) for _ in range(number)))
            found[number].append(sum(speeds))
    return [
        Line(
            f"{AT_ONCE} at once in each of {number} processes",
            "steps/s",
            speeds,
            found[1],
            "1 process",
            note=await server.settings(),
        )
        for number, speeds in found.items()
    ]


def _worker(url: str) -> float:
    command = [sys.executable, "-m", "bench._pg_steps", url]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=600)
    return float(json.loads(done.stdout))


if __name__ == "__main__":
    found = asyncio.run(run_steps(sys.argv[1], "together", "", 2 * BATCHES))
    print(json.dumps(len(found.latencies) * STEPS / found.seconds))
