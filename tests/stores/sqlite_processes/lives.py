"""Lives of a store between power cuts, with what its clients saw.

A life is lived once: clients work on a `SqliteStore` whose files are on a `Disk`. Then the power is
cut at every moment of it in turn, and each time a new store is opened on what is left. The clients'
log up to that moment is the evidence: what was answered before must be there; what was under way
may be, but only as a whole. The next life begins with what one of the cuts has left.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Raw

from outlast.engine.runner.group_commit import CommitBatcher
from outlast.errors import OutlastError
from outlast.model import Commit, Creation, Entry, Event, Run, Snapshot
from outlast.ports import Store
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import Synchronous
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.checker import Evidence, Fate, Log, Op, RecordingStore, check, dump
from tests.stores.sqlite_processes.disk import Did, Disk, Image, write_image
from tests.unit.testkit.faults.storm import Storm

MEMORY = Path("/dev/shm")
FILE = "store.db"
LOG_LIMIT = 96 * 1024  # small, so that the log is checkpointed and begun again many times in a life
DAY = 86_400.0


class Cut(NamedTuple):
    """What a power cut has left, and which promises that breaks."""

    image: Image
    known: list[Op]
    lost: list[str]
    damaged: list[str]


class Life:
    """One life of a store, after those in which `before` happened and which left `image`."""

    def __init__(
        self, number: int, seed: int, synchronous: Synchronous, before: list[Op], image: Image
    ) -> None:
        self._number = number
        self._seed = seed
        self._synchronous = synchronous
        self._before = before
        self._image = image
        self._base = max((op.ended for op in before), default=0)
        self._log = Log()
        self._disk: Disk | None = None

    async def live(self) -> None:
        """Work for a while, then close the store as one should."""
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            disk = self._disk = Disk(Path(folder), self._image)
            self._log = _DiskLog(disk, self._base)
            clock = ManualClock()
            clock.advance(self._number * DAY)
            store = SqliteStore(
                f"{folder}/{FILE}",
                clock=clock,
                synchronous=self._synchronous,
                log_limit=LOG_LIMIT,
                connect=disk.connect,
            )
            async with store:
                await _Clients(store, clock, self._seed, self._log, self._number).work()
            disk.close()

    async def cuts(self, limit: int | None = None) -> AsyncIterator[Cut]:
        """Cut the power at every moment, or at `limit` of them chosen by chance, and look."""
        assert self._disk is not None, "it has not been lived"
        moments = self._disk.moments()
        if limit is not None and limit < len(moments):
            moments = sorted(random.Random(self._seed).sample(moments, limit))
        for moment, image in self._disk.crashes(moments, self._seed):
            yield await _inspect(image, self._known_at(self._base + moment))

    def _known_at(self, moment: int) -> list[Op]:
        """What the clients knew then. A call under way may have happened or not."""
        known = list(self._before)
        for op in self._log.ops:
            if op.ended <= moment:
                known.append(op)
            elif op.begun <= moment:
                known.append(msgspec.structs.replace(op, fate=Fate.UNKNOWN, result=None))
        return known


class _DiskLog(Log):
    """A log whose clock is the record of the disk."""

    def __init__(self, disk: Disk, base: int) -> None:
        super().__init__()
        self._disk = disk
        self._base = base

    def tick(self) -> int:
        return self._base + self._disk.note(Did("tick"))


class _Clients(Storm):
    """The clients of the storm of calls, none of which goes wrong here, and some who append much
    through a journal."""

    def __init__(self, store: Store, clock: ManualClock, seed: int, log: Log, life: int) -> None:
        super().__init__(store, clock, seed)
        self.log = log
        self._life = life

    async def work(self) -> None:
        """Everybody at once."""
        await asyncio.gather(
            *(self._start(self._client(f"starter {n}")) for n in range(2)),
            *(self._work(self._client(f"worker {n}")) for n in range(2)),
            *(self._send(self._client(f"sender {n}")) for n in range(2)),
            self._delete(self._client("deleter")),
            self._append(self._client("journal")),
        )

    def _client(self, name: str) -> RecordingStore:
        return RecordingStore(self.store, self.log, f"{name} of life {self._life}")

    def _fresh(self, kind: str) -> str:
        return f"{super()._fresh(kind)}-{self._life}"

    async def _append(self, store: Store) -> None:
        journal = CommitBatcher(store)
        for _ in range(8):
            await asyncio.gather(
                *(
                    journal.commit(self._page(f"book-{n}"))
                    for n in self.random.sample(range(6), self.random.randint(1, 6))
                )
            )

    def _page(self, run_id: str) -> Commit:
        """A commit of any size, from one row to several pages of the file."""
        events = tuple(
            Event(
                type="page.written",
                run_id=run_id,
                id=self._fresh("p"),
                data=Raw(b'"%s"' % (b"x" * self.random.choice((0, 10, 300, 5_000)))),
            )
            for _ in range(self.random.choice((1, 1, 3)))
        )
        entry = Entry(run_id=run_id, id=self._fresh("line"), step_id="write", action="done")
        return Commit(
            run_id=run_id,
            id=self._fresh("c"),
            create=Run(id=run_id, uid=self._fresh("u")),
            creation=Creation.UPSERT,
            events=events,
            entries=(entry,) if self.random.random() < 0.3 else (),
            snapshot=Snapshot(run_id=run_id, sequence=0, data=b"s" * 700)
            if self.random.random() < 0.2
            else None,
        )


async def _inspect(image: Image, known: list[Op]) -> Cut:
    """Open a store on what is left: what is lost of the acknowledged, what is worse than lost?"""
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        write_image(Path(folder), image)
        path = f"{folder}/{FILE}"
        try:
            async with SqliteStore(path, clock=ManualClock()) as store:
                left = await dump(store, listed=False)
                damage = _integrity(path)
                # Life goes on.
                await store.append("after", [Event(type="power.back", run_id="after")])
        except (OutlastError, sqlite3.Error) as error:
            return Cut(image, known, [], [f"it does not open: {error!r}"])
    broken = check(Evidence(ops=known, dumps=[left]))
    if broken:
        # What is wrong even if nobody had been told anything is worse than a loss.
        unsure = [msgspec.structs.replace(op, fate=Fate.UNKNOWN, result=None) for op in known]
        worse = check(Evidence(ops=unsure, dumps=[left]))
        damage += map(str, worse)
        broken = [violation for violation in broken if violation not in worse]
    return Cut(image, known, [str(violation) for violation in broken], damage)


def _integrity(path: str) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("PRAGMA integrity_check").fetchall()
    return [] if rows == [("ok",)] else [f"integrity_check: {rows[:3]}"]


def _memory() -> Path | None:
    """A folder in memory, if the system has one: syncing files for real would teach us nothing."""
    return MEMORY if MEMORY.is_dir() else None
