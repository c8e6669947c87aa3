"""One run that many write to: children that end at the same time, and appends by callers outside.

children   2,500 children of one run, by two workers with the settings as they come, on every store: seconds
           until the parent has their results, and how many steps were run twice
appends    20 callers outside of any worker append to one run, an event each time, and wait for a run that is
           locked (`timeout`): on every store, next to SQLite, where appends of one process share transactions

    ./dev bench shared [--rounds 3] [--only children] [--children 2500] [--events 2000] [--json FILE]
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from bench._aims import FAMILY_SECONDS
from bench._appends import an_event
from bench._arena import Arena, Size, compete
from bench._peers import ours, told
from bench._stores import STORES, settings_of, store_at
from bench._table import Aim, Contest, Entry
from bench.peers._clock import made_ready

WORKERS = ("start", "work")
CALLERS = 20
HOT = "hot"
PATIENCE = 30.0


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "children": Size(2_500, 2_500, "children of one run"),
        "events": Size(2_000, 10_000, "events to append to one run"),
    }
    return compete(
        __name__, argv, {"children": children, "appends": appends}, rounds=3, sizes=sizes
    )


def children(arena: Arena) -> list[Contest]:
    """Seconds until all have ended, and steps that were run twice."""
    count, contests = arena.size("children"), []
    for store in STORES:
        who = f"outlast, {store}"
        found, _ = arena.alternate({who: partial(_family, arena, store, count)})
        name, settings = f"{count:,} children, {len(WORKERS)} workers, {store}", found[who][0][2]
        took = Entry(who, [seconds for seconds, _, _ in found[who]], settings)
        twice = Entry(who, [float(again) for _, again, _ in found[who]], settings)
        aims = [Aim(FAMILY_SECONDS)] if store == "PostgreSQL" else []
        contests += [
            Contest(name, "s", [took], less=True, aims=aims),
            Contest(f"{name}, steps run twice", "steps", [twice], less=True, aims=[Aim(0)]),
        ]
    return contests


def _family(arena: Arena, store: str, count: int) -> tuple[float, int, str]:
    place, ledger = arena.place(store), arena.folder / f"ledger{time.time_ns():x}"
    programs = [ours("bench._family", place, str(ledger), str(count), role) for role in WORKERS]
    found = told(programs, arena.folder)
    begun = ledger.read_text().split()
    ledger.unlink()
    return max(one["seconds"] for one in found), len(begun) - count, found[0]["settings"]


def appends(arena: Arena) -> list[Contest]:
    """Events a second; each store next to the first."""
    each = max(arena.size("events") // CALLERS, 1)
    found, _ = arena.alternate(
        {f"outlast, {store}": partial(_append, arena, store, each) for store in STORES}
    )
    entries = [
        Entry(who, [CALLERS * each / seconds for seconds, _ in rounds], rounds[0][1])
        for who, rounds in found.items()
    ]
    name = f"append to one run, {CALLERS} callers outside"
    return [Contest(name, "events/s", entries, grows=True)]


def _append(arena: Arena, store: str, each: int) -> tuple[float, str]:
    async def measure(place: str) -> tuple[float, str]:
        async with store_at(place) as opened:

            async def call() -> None:
                for number in range(each):
                    await opened.append(HOT, [an_event(HOT, number)], timeout=PATIENCE)

            await opened.append(HOT, [an_event(HOT, 0)])
            with made_ready():
                begun = time.perf_counter()
                await asyncio.gather(*(call() for _ in range(CALLERS)))
                took = time.perf_counter() - begun
            if await opened.last_sequence(HOT) != CALLERS * each + 1:
                raise AssertionError("events are missing")
            return took, settings_of(opened)

    return asyncio.run(measure(arena.place(store)))
