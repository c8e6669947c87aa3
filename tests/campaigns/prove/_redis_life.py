"""A process that runs workflows on a Redis that comes and goes, and what can be said of it afterwards.

::

    parent ── does things to the server ──▶ Redis ◀── App ── one process, which is never killed
                                                       ├── effects: what bodies did
                                                       └── told: what its client heard

The client in it is one that knows no more than a client can: a start or a signal that was not answered
is asked for again. What there is to see is judged by `tests.campaigns.engine_kills.verdict`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import outlast
from outlast.model import Status
from outlast.stores.redis import RedisStore
from outlast.testkit.checker import dump
from outlast.urls import resolve
from tests.campaigns.engine_kills.accompanying import Companion
from tests.campaigns.engine_kills.killing import Evidence
from tests.campaigns.engine_kills.ledgers import Effect, Ledger, Told, keep_effects, read
from tests.campaigns.engine_kills.verdict import executions, given_up
from tests.campaigns.engine_kills.workflows import KINDS, id_of
from tests.stores.sqlite_processes.crew import Member

LEASE = 2.0
UNDER_WAY = 2 * len(KINDS)
STILL = 15.0
"""Seconds without any progress after which what is left will not end by itself."""


class Load:
    """The process, from outside."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._member = Member(live, (url, str(folder)))
        assert self._member.pipe.recv() == "open"

    def watch(self, seconds: float) -> None:
        """Let it work for so long; that it dies by itself is a failure."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._member.pipe.poll(left):
                raise AssertionError(f"it ended: {self._member.pipe.recv()}")

    def finish(self) -> Evidence:
        """Begin nothing new, bring all to an end that comes to one, and see what is there."""
        self._member.pipe.send("enough")
        try:
            assert self._member.pipe.recv() == "over"
        finally:
            self._member.kill()
        return asyncio.run(self._collect())

    def kill(self) -> None:
        """End it by force."""
        self._member.kill()

    async def _collect(self) -> Evidence:
        store = resolve(self._url)
        assert isinstance(store, RedisStore)
        async with store:
            final = await dump(store)
            wrong = await store.reconcile()
        integrity = [f"{wrong} places of the indexes were not right"] if wrong else []
        told = read(self._folder / "told", Told)
        return Evidence(told, read(self._folder / "effects", Effect), final, integrity)


def figures_of(evidence: Evidence) -> dict[str, int]:
    """What a campaign went through."""
    bodies = executions(evidence.effects)
    told = Counter(one.what for one in evidence.told)
    tries = Counter(
        (one.run_id, one.uid, one.key) for one in evidence.effects if one.what == "begun"
    )
    return {
        "runs": len(evidence.final.runs),
        "events": sum(len(dumped.events) for dumped in evidence.final.runs.values()),
        "bodies": len(bodies),
        "cut off": sum(one.ended is None for one in bodies),
        "begun more than once": sum(count > 1 for count in tries.values()),
        "starts asked again": told["starting"] - told["started"],
        "signals asked again": told["sending"] - told["sent"] - told["refused"],
        "given up": sum(given_up(dumped) for dumped in evidence.final.runs.values()),
    }


# -- inside ---------------------------------------------------------------------------------------


def live(pipe: Pipe, url: str, folder: str) -> str:
    """Run workflows until told that it is enough, then until all is over."""
    logging.getLogger("outlast").setLevel(logging.CRITICAL)  # it is full of what is done to us
    return asyncio.run(_Life(Path(folder)).live(pipe, url))


class _Life:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ledger = Ledger(folder / "told", 0)
        keep_effects(Ledger(folder / "effects", 0))

    async def live(self, pipe: Pipe, url: str) -> str:
        workflows = [kind.workflow for kind in KINDS.values()]
        async with outlast.App(url, workflows=workflows, lease=LEASE) as app:
            companion = Companion(app, self._ledger)
            pipe.send("open")
            enough = asyncio.create_task(asyncio.to_thread(pipe.recv))
            mine: set[asyncio.Task[None]] = set()
            born: dict[asyncio.Task[None], float] = {}
            while mine or not enough.done():
                # A run that was quarantined never ends: after a while it no longer counts.
                since = time.monotonic() - STILL
                fresh = sum(born[task] > since for task in mine)
                for _ in range(UNDER_WAY - fresh if not enough.done() else 0):
                    task = asyncio.create_task(companion.accompany(id_of(len(born))))
                    born[task] = time.monotonic()
                    mine.add(task)
                is_last = enough.done()
                done, mine = await asyncio.wait(
                    mine,
                    timeout=STILL if is_last else 1.0,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    task.result()
                if is_last and not done:
                    self._tell_what_hangs()
                    break
            for task in mine:
                task.cancel()
            await asyncio.gather(*mine, return_exceptions=True)
        return "over"

    def _tell_what_hangs(self) -> None:
        with (self._folder / "hanging").open("w", encoding="utf-8") as file:
            for task in asyncio.all_tasks():
                task.print_stack(file=file)


def is_quarantined(error: str | None) -> bool:
    """Whether a run was taken away because Redis has gone back behind it."""
    return (error or "").startswith("quarantined")


def open_runs(evidence: Evidence) -> list[str]:
    """Runs that have not ended."""
    ended = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    return [id for id, one in evidence.final.runs.items() if one.run.status not in ended]
