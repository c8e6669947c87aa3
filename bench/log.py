"""The event log: appends, reading back, coming back; next to eventsourcing and to the bare limit.

append     10,000 events: 1 and 100 a commit by one caller, and 1 a commit by 100 callers, whose commits
           share transactions; next to bare loops that write the same rows on the same store, unchecked and
           fenced (bench/_bare_*.py), and to eventsourcing's recorder
read       whole histories, next to msgspec decoding the same events, and to eventsourcing
resume     reading and replaying a run of 10, 1,000, 10,000 and 100,000 events, of iterations of a loop,
           of steps in a few scopes and in a row; replay alone; a snapshot next to its events
limits     what this machine can do at all: fsync, encoding an event

    ./dev bench log [--rounds 3] [--only append] [--events 10000] [--alone] [--json FILE] [--plot FOLDER]

A *caller* awaits `CommitBatcher(store).commit(commit)` again and again, on a run of its own that it holds a
claim on; several callers share a journal, as the runs of a worker do.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from bench._aims import FENCED, OF_BARE, UNCHECKED
from bench._appends import an_event, append, script
from bench._arena import Arena, Size, compete, seconds
from bench._bare_postgres import bare_inserts
from bench._bare_redis import bare_scripts
from bench._bare_sqlite import bare_loop
from bench._peers import theirs, told
from bench._resume import measure_resume
from bench._stores import STORES, settings_of, store_at
from bench._table import Aim, Contest, Entry
from bench.peers._clock import made_ready
from outlast.model.times import EPOCH

CALLERS = 100
BARE = {"SQLite": bare_loop, "PostgreSQL": bare_inserts, "Redis": bare_scripts}
READS = {20: 500, 1_000: 40}  # histories, by events in each
PAGE = b"x" * 4096
SYNCS = 300
ENCODED = 20_000


class Case(NamedTuple):
    """So many callers make so many appends each, of `size` events."""

    callers: int
    each: int
    size: int

    def __str__(self) -> str:
        what = f"{self.size} event{'s' if self.size > 1 else ''} a commit"
        return what if self.callers == 1 else f"{what}, {self.callers} callers"

    @property
    def events(self) -> int:
        """All of them."""
        return self.callers * self.each * self.size


PACKAGES = ("eventsourcing",)


def main(argv: list[str]) -> int:
    """Measure."""
    parts = {"append": appends, "read": reads, "resume": measure_resume, "limits": limits}
    sizes = {
        "events": Size(10_000, 10_000, "events to append"),
        "long": Size(100_000, 100_000, "events of the longest loop and scopes"),
        "row": Size(10_000, 100_000, "events of the longest run of steps in a row"),
    }
    return compete(__name__, argv, parts, rounds=3, sizes=sizes, peers=PACKAGES)


# -- appending ------------------------------------------------------------------------------------


def appends(arena: Arena) -> list[Contest]:
    """Events a second."""
    events = arena.size("events")
    cases = [
        Case(1, events, 1),
        Case(1, max(events // 100, 1), 100),
        Case(CALLERS, max(events // CALLERS, 1), 1),
    ]
    contests: list[Contest] = []
    for store in STORES:
        contestants: dict[str, Callable[[], tuple[list[float], str]]] = {
            f"outlast, {store}": partial(_our_appends, arena, store, cases),
            **_bare(arena, store, cases),
        }
        if store != "Redis" and not arena.alone:
            contestants[f"eventsourcing, {store}"] = partial(_their_appends, arena, store, cases)
        found, left_out = arena.alternate(contestants)
        for number, case in enumerate(cases):
            entries = [
                Entry(who, [case.events / took[number] for took, _ in rounds], rounds[0][1])
                for who, rounds in found.items()
                if number < len(rounds[0][0])
            ]
            aims = [Aim(OF_BARE, entry.who) for entry in entries if entry.who.startswith(UNCHECKED)]
            name = f"append, {case}, {store}"
            contests.append(Contest(name, "events/s", entries, aims=aims, left_out=left_out))
    return contests


def _our_appends(arena: Arena, store: str, cases: list[Case]) -> tuple[list[float], str]:
    async def measure(place: str) -> tuple[list[float], str]:
        async with store_at(place) as opened:
            return [await append(opened, *case) for case in cases], settings_of(opened)

    return asyncio.run(measure(arena.place(store)))


def _bare(
    arena: Arena, store: str, cases: list[Case]
) -> dict[str, Callable[[], tuple[list[float], str]]]:
    """Loops that write the same: with nothing checked, and with the fence alone."""

    def each(*, fenced: bool) -> tuple[list[float], str]:
        loop = BARE[store]
        took = [
            asyncio.run(loop(_plain(arena.place(store)), *case, fenced=fenced)) for case in cases
        ]
        return took, "the same pragmas" if store == "SQLite" else "the same server"

    return {UNCHECKED: partial(each, fenced=False), FENCED: partial(each, fenced=True)}


def _plain(place: str) -> str:
    return place.removeprefix("sqlite:///").partition("#")[0]


def _their_appends(arena: Arena, store: str, cases: list[Case]) -> tuple[list[float], str]:
    alone = [[case.each, case.size] for case in cases if case.callers == 1]
    found = _eventsourcing(arena, store, alone, [])
    return found["append"], found["settings"]


def _eventsourcing(
    arena: Arena, store: str, cases: list[list[int]], reads: list[list[int]]
) -> dict[str, Any]:
    place = _plain(arena.place(store))
    args = (place, json.dumps(cases), json.dumps(reads))
    [found] = told([theirs("eventsourcing", "eventsourcing_log", *args)], arena.folder)
    return found


# -- reading --------------------------------------------------------------------------------------


class _Plain(Struct, kw_only=True, omit_defaults=True):
    """An event as msgspec decodes it at its best: typed, payloads left raw."""

    type: str
    run_id: str
    id: str
    sequence: int = 0
    version: int = 1
    step_name: str = ""
    data: Raw = Raw(b"{}")
    output: Raw = Raw(b"")
    timestamp: object = EPOCH
    metadata: dict[str, str] = {}
    token: int = 0


def reads(arena: Arena) -> list[Contest]:
    """Whole histories, through the port."""
    texts: dict[int, list[bytes]] = {}
    alone = "msgspec alone, one JSON array"
    contestants: dict[str, Callable[[], tuple[list[float], str]]] = {
        f"outlast, {store}": partial(_our_reads, arena, store, texts) for store in STORES
    }
    contestants[alone] = partial(_decoded, texts)
    if not arena.alone:
        for store in ("SQLite", "PostgreSQL"):
            contestants[f"eventsourcing, {store}"] = partial(_their_reads, arena, store)
    found, left_out = arena.alternate(contestants)
    return [
        Contest(
            f"read back, histories of {length:,} events, {store}",
            "events/s",
            [
                Entry(who, [length * count / took[number] for took, _ in rounds], rounds[0][1])
                for who, rounds in found.items()
                if who.endswith(store) or who == alone
            ],
            aims=[Aim(250_000)] if store == "SQLite" else [],
            left_out={who: why for who, why in left_out.items() if who.endswith(store)},
        )
        for store in STORES
        for number, (length, count) in enumerate(READS.items())
    ]


def _our_reads(arena: Arena, store: str, texts: dict[int, list[bytes]]) -> tuple[list[float], str]:
    async def measure(place: str) -> tuple[list[float], str]:
        took = []
        async with store_at(place) as opened:
            for length, count in READS.items():
                ids = []
                for _ in range(count):
                    [commit] = await script(opened, 1, length)
                    await opened.commit([commit])
                    ids.append(commit.run_id)

                async def read(ids: list[str] = ids) -> None:
                    for id in ids:
                        await opened.history(id)

                took.append(await seconds(read))
                if length not in texts:
                    texts[length] = [msgspec.json.encode(await opened.history(id)) for id in ids]
            return took, settings_of(opened)

    return asyncio.run(measure(arena.place(store)))


def _decoded(texts: dict[int, list[bytes]]) -> tuple[list[float], str]:
    decode = msgspec.json.Decoder(list[_Plain]).decode
    took = []
    for length in READS:
        with made_ready():
            begun = time.perf_counter()
            for text in texts[length]:
                decode(text)
            took.append(time.perf_counter() - begun)
    return took, "no store"


def _their_reads(arena: Arena, store: str) -> tuple[list[float], str]:
    cases = [[count, length] for length, count in READS.items()]
    found = _eventsourcing(arena, store, [], cases)
    return found["read"], found["settings"]


# -- the machine ----------------------------------------------------------------------------------


def limits(arena: Arena) -> list[Contest]:
    """What nobody can be faster than, one after the other on this machine."""
    acts: dict[str, Callable[[], float]] = {"syncs": partial(_syncs, arena), "encoded": _encoded}
    found, _ = arena.alternate(acts)
    syncs, encoded = found["syncs"], found["encoded"]
    return [
        Contest(
            "limit: 4 KiB written and synced, one after the other",
            "/s",
            [Entry("fdatasync", syncs, "the same disk")],
        ),
        Contest("limit: an event encoded as JSON", "/s", [Entry("msgspec", encoded, "no store")]),
    ]


def _syncs(arena: Arena) -> float:
    file = os.open(arena.folder / "synced", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        begun = time.perf_counter()
        for _ in range(SYNCS):
            os.write(file, PAGE)
            os.fdatasync(file)
        return SYNCS / (time.perf_counter() - begun)
    finally:
        os.close(file)


def _encoded() -> float:
    event, encode = an_event("run", 1), msgspec.json.Encoder().encode
    with made_ready():
        begun = time.perf_counter()
        for _ in range(ENCODED):
            encode(event)
        return ENCODED / (time.perf_counter() - begun)
