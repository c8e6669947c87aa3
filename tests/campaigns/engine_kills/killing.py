"""A process that runs workflows and is killed, again and again, until all is over.

::

    parent ── kill -9 at a random moment, and a new one ──▶ life 0, life 1, life 2 …
                                                              │ App on one SQLite file
                                                              ├── effects: what bodies did
                                                              └── told: what its client heard

Each life goes on with what its client has under way: it repeats a start or a signal that nobody
answered, as a client must who does not know what became of it, and begins new runs meanwhile. The
last life starts one more run of each kind, which no kill interrupts, and lives until everything has
ended.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import NamedTuple

import outlast
from outlast.errors import RunClosed, RunFailed
from outlast.stores.sqlite import SqliteStore
from outlast.testing.crash_sweep import residency_for
from outlast.testkit.checker import Dump, dump
from tests.campaigns.engine_kills.ledgers import Effect, Ledger, Told, keep_effects, read
from tests.campaigns.engine_kills.workflows import KINDS, SIGNALS, Kind, id_of, kind_of, listens
from tests.stores.sqlite_processes.crew import Member

LEASE = 1.0
UNDER_WAY = 2 * len(KINDS)
PATIENCE = 60.0
"""Seconds that the last life may take: if that is not enough, something hangs."""


class Evidence(NamedTuple):
    """All there is to judge by."""

    told: list[Told]
    effects: list[Effect]
    final: Dump
    integrity: list[str]
    kinds: Mapping[str, Kind] = KINDS


def kill_again_and_again(folder: Path, *, kills: int, seed: int, longest: float) -> Evidence:
    """Kill `kills` lives, each after at most `longest` seconds, and let the last one finish."""
    chance = random.Random(seed)
    for life in range(kills):
        member = Member(live, (str(folder), life, False))
        if chance.random() < 0.9:
            assert member.pipe.recv() == "open"  # EOFError: it died by itself, and said why
        # Otherwise it is killed while it opens the file.
        _watch(member, chance.uniform(0, longest))
        member.kill()
    last = Member(live, (str(folder), kills, True))
    try:
        assert last.pipe.recv() == "open"
        if last.pipe.poll(PATIENCE):  # if not, the verdict will say what has not ended
            last.pipe.recv()
    finally:
        last.kill()
    return asyncio.run(_collect(folder))


def _watch(member: Member, seconds: float) -> None:
    """Let it live for so long; that it dies by itself is a failure."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if member.pipe.poll(left):
            assert member.pipe.recv() == "open"


async def _collect(folder: Path) -> Evidence:
    path = folder / "store.db"
    async with SqliteStore(str(path)) as store:
        final = await dump(store)
    with closing(sqlite3.connect(path)) as connection:
        rows = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    told, effects = read(folder / "told", Told), read(folder / "effects", Effect)
    return Evidence(told, effects, final, rows)


# -- a life ---------------------------------------------------------------------------------------


def live(pipe: Pipe, folder: str, life: int, is_last: bool) -> str:
    """Run workflows until killed or, in the last life, until all is over."""
    logging.getLogger("outlast").setLevel(logging.CRITICAL)  # it is full of what we do to it
    return asyncio.run(_Life(Path(folder), life, is_last).live(pipe))


class _Life:
    def __init__(self, folder: Path, life: int, is_last: bool) -> None:
        self._folder = folder
        self._life = life
        self._is_last = is_last
        self._ledger = Ledger(folder / "told", life)
        self._past = {(one.what, one.run_id, one.number) for one in read(folder / "told", Told)}
        self._next = len({run_id for what, run_id, _ in self._past if what == "starting"})

    async def live(self, pipe: Pipe) -> str:
        keep_effects(Ledger(self._folder / "effects", self._life))
        workflows = [kind.workflow for kind in KINDS.values()]
        url = f"sqlite:///{self._folder}/store.db"
        async with outlast.App(
            url, workflows=workflows, lease=LEASE, residency=residency_for(self._life)
        ) as self._app:
            pipe.send("open")
            over = {run_id for what, run_id, _ in self._past if what in ("result", "failed")}
            known = [id_of(number) for number in range(self._next)]
            mine = {asyncio.create_task(self._accompany(id)) for id in known if id not in over}
            fresh = len(KINDS) if self._is_last else 0
            while True:
                while fresh or (len(mine) < UNDER_WAY and not self._is_last):
                    mine.add(asyncio.create_task(self._accompany(id_of(self._next))))
                    self._next += 1
                    fresh = max(fresh - 1, 0)
                if not mine:
                    return "over"
                done, mine = await asyncio.wait(mine, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()

    async def _accompany(self, run_id: str) -> None:
        """What the client of one run does, from wherever it was."""
        kind, number = kind_of(run_id)
        if ("started", run_id, 0) not in self._past:
            self._note("starting", run_id)
            await self._app.start(kind.workflow(number), id=run_id)
            self._note("started", run_id)
        if kind.workflow is listens:
            await self._talk_to(run_id)
        try:
            value = await self._app.get(run_id).result()
        except RunFailed as failure:
            self._note("failed", run_id, value=failure.error)
        else:
            self._note("result", run_id, value=value)

    async def _talk_to(self, run_id: str) -> None:
        for word in range(SIGNALS):
            if ("sent", run_id, word) in self._past:
                continue
            self._note("sending", run_id, word)
            try:
                await self._app.get(run_id).signal("word", word, dedup=f"word-{word}")
            except RunClosed:
                self._note("refused", run_id, word)
            else:
                self._note("sent", run_id, word)
            await asyncio.sleep(0.01 * random.random())  # talk is not always at once

    def _note(self, what: str, run_id: str, number: int = 0, *, value: object = None) -> None:
        self._ledger.write(Told(what, self._life, run_id, number, value))
