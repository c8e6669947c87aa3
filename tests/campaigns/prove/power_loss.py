"""Power loss: is every acknowledged commit there when the power comes back?

`SqliteStore` works on a disk that forgets what was not synced (tests/stores/sqlite_processes/disk.py), and
the power is cut before every single write, truncation, sync and deletion of many lives, each of
which begins with what a cut has left of the one before (lives.py). On what is left a new store is
opened; the history checker compares it with what the clients were told, SQLite checks the file, and
one more commit must go through.

With `synchronous=FULL` nothing may be lost. `synchronous=NORMAL` is the control: it must lose some,
or the disk forgets too little to show anything. Damage is allowed in neither.

    ./dev prove power_loss [--cuts 20000] [--control-cuts 3000] [--jobs 2] [--seed 1]

What is left after a cut that broke a promise is kept in .cache/prove/.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sqlite3
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from multiprocessing import get_context
from pathlib import Path

import apsw
import msgspec

from outlast.stores.sqlite.connection import Synchronous
from outlast.testkit.checker import Op
from tests.stores.sqlite_processes.disk import Image, write_image
from tests.stores.sqlite_processes.lives import Life

KEPT = Path(__file__).parents[3] / ".cache" / "prove"
LIVES = 3


class Tally(msgspec.Struct):
    """Cuts, those that lost something acknowledged, those that did worse, and what they did."""

    cuts: int = 0
    losing: int = 0
    damaging: int = 0
    messages: list[str] = []

    def add(self, other: Tally) -> None:
        """Count another one in."""
        self.cuts += other.cuts
        self.losing += other.losing
        self.damaging += other.damaging
        self.messages = [*self.messages, *other.messages]


def main(argv: list[str]) -> int:
    """Cut until there are enough cuts; 1 if a promise was broken, or the control broke none."""
    parser = argparse.ArgumentParser(prog="./dev prove power_loss")
    parser.add_argument("--cuts", type=int, default=20_000, help="power cuts with FULL")
    parser.add_argument("--control-cuts", type=int, default=3_000, help="power cuts with NORMAL")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    full = campaign("full", options.cuts, jobs=options.jobs, first=options.seed)
    normal = campaign("normal", options.control_cuts, jobs=options.jobs, first=options.seed)
    print(
        f"\nwritten by SQLite {apsw.sqlite_lib_version()} (apsw), read by {sqlite3.sqlite_version}"
    )
    for name, tally in (("FULL", full), ("NORMAL (control)", normal)):
        print(
            f"{name}: {tally.cuts:,} power cuts, {tally.losing:,} lost something acknowledged, "
            f"{tally.damaging:,} damaged something"
        )
    for message in full.messages[:20]:
        print(f"  {message}")
    if normal.cuts and not normal.losing:
        print("the control lost nothing: this disk forgets too little")
    broken = full.losing + full.damaging + normal.damaging
    return int(bool(broken or (normal.cuts and not normal.losing)))


def campaign(synchronous: Synchronous, cuts: int, *, jobs: int, first: int) -> Tally:
    """Chains of lives, with seeds from `first` on, until that many cuts are made."""
    total, begun = Tally(), time.monotonic()
    seeds = count(first)
    with ProcessPoolExecutor(jobs, mp_context=get_context("forkserver")) as pool:
        running: set[Future[Tally]] = set()
        while total.cuts < cuts:
            while len(running) < jobs:
                running.add(pool.submit(chain, synchronous, next(seeds), cuts - total.cuts))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())
            rate = total.cuts / (time.monotonic() - begun)
            print(
                f"{synchronous:6} {total.cuts:6}/{cuts}  {rate:4.0f}/s  "
                f"{total.losing} losing, {total.damaging} damaging",
                flush=True,
            )
        for future in running:
            total.add(future.result())
    return total


def chain(synchronous: Synchronous, seed: int, limit: int) -> Tally:
    """Some lives, each cut at every moment, or at `limit` if that is less."""
    return asyncio.run(_chain(synchronous, seed, limit))


async def _chain(synchronous: Synchronous, seed: int, limit: int) -> Tally:
    tally = Tally()
    chance = random.Random(seed)
    before: list[Op] = []
    image: Image = {}
    for number in range(LIVES):
        life = Life(number, seed * LIVES + number, synchronous, before, image)
        await life.live()
        sound = 0
        async for cut in life.cuts(limit):
            tally.cuts += 1
            tally.losing += bool(cut.lost)
            tally.damaging += bool(cut.damaged)
            broken = [*cut.damaged, *(cut.lost if synchronous == "full" else ())]
            if broken:
                kept = KEPT / f"power-{synchronous}-{seed}-{tally.cuts}"
                kept.mkdir(parents=True, exist_ok=True)
                write_image(kept, cut.image)
                tally.messages.append(f"{kept.name}: {'; '.join(broken[:3])}")
            elif not cut.lost:
                # The next life begins with what one of the cuts has left, each as likely.
                sound += 1
                if chance.random() < 1 / sound:
                    before, image = cut.known, cut.image
    return tally
