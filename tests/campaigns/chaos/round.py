"""A round: a store, workers, a client, and a nemesis; then quiet, an end, and what is left of it.

::

    client ── begins runs of every kind ──▶ store ◀── 4 to 8 × `outlast worker`
       │                                     ▲  ▲           │ some through a proxy each
       └─ told                      restarts │  │ cuts      ├─ effects, ops, stalls
                                        nemesis ┴── signals, clocks, grips ──▶ workers
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from outlast.testkit.checker import Dump, Op
from tests.campaigns.chaos.ledgers import Fault, read_ops, read_stalls
from tests.campaigns.chaos.nemesis import Nemesis
from tests.campaigns.chaos.network import Network
from tests.campaigns.chaos.places import Place, opened
from tests.campaigns.chaos.workers import ROOT, Clockwork, Slot
from tests.campaigns.chaos.workflows import ALL_KINDS
from tests.campaigns.engine_kills.killing import Evidence
from tests.campaigns.engine_kills.ledgers import Effect, Told, read
from tests.unit.testkit.faults.proxy import Proxy

PATIENCE = 180.0
"""Seconds without any run coming to its end after which what is left will not end by itself."""


class Left(Struct, frozen=True, kw_only=True):
    """All there is to judge a round by."""

    evidence: Evidence
    ops: list[Op]
    faults: list[Fault]
    problems: list[str]
    leaving: list[float]
    seconds: float


class Round:
    """One store from its beginning to its end, in a folder of its own."""

    def __init__(
        self, kind: type[Place], folder: Path, seed: int, *, workers: int, clocks: bool = True
    ) -> None:
        self._kind = kind
        self._clocks = clocks and Clockwork.library() is not None
        self._wires = Network.missing() is None
        self._networks: list[Network] = []
        self._folder = folder
        self._chance = random.Random(seed)
        self._workers = workers
        self._lives = 0
        self._begun = 0
        self._ended = 0
        self._over = False
        self._progress = asyncio.Event()
        self.problems: list[str] = []
        self.slots: list[Slot] = []
        self.place: Place

    async def play(self, *, runs: int, faults: int) -> Left:
        """Until so many runs have ended and so many faults were survived."""
        begun = time.monotonic()
        self.place = await opened(self._kind, self._folder)
        proxies: list[Proxy] = []
        listening: asyncio.Task[None] | None = None
        try:
            await self._hire(proxies)
            listening = await self._begin_client()
            await self._until(lambda: self._ended > 0)  # all have opened the store
            every = runs / (faults + 1)
            absent = {"clock": not self._clocks, "wire": not self._wires}
            kinds = [one for one in self.place.FAULTS if not absent.get(one, False)]
            nemesis = Nemesis(self, self._chance, kinds, faults=faults, every=every)
            striking = asyncio.create_task(nemesis.strike())
            watching = asyncio.create_task(self._refill())
            await self._until(lambda: striking.done() and self._begun >= runs)
            await striking
            self._say("enough")
            await self._until(lambda: self._over)
            watching.cancel()
            for slot in self.slots:
                if self._over:
                    nemesis.leaving.append(await slot.leave(undisturbed=True))
                self.problems += slot.problems
            return await self._collect(nemesis, time.monotonic() - begun)
        finally:
            if listening is not None:
                listening.cancel()
                with suppress(ProcessLookupError):
                    self._client.kill()
                await self._client.wait()
            for slot in self.slots:
                slot.kill()
            for proxy in proxies:
                await proxy.stop()
            for network in self._networks:
                await asyncio.to_thread(network.remove)
            await asyncio.to_thread(self.place.stop)

    # -- what the nemesis needs ---------------------------------------------------------------

    def fill(self, slot: Slot) -> None:
        """Put a new worker into a slot."""
        self._lives += 1
        slot.fill(self._lives)

    async def until_begun(self, count: float) -> None:
        """Return when the client has begun so many runs, or is gone."""
        while self._begun < count and not self._over:
            self._progress.clear()
            await self._progress.wait()

    def begin(self, kind: str) -> None:
        """Have the client begin a run at once."""
        self._say(f"begin {kind}")

    # -- processes ----------------------------------------------------------------------------

    async def _hire(self, proxies: list[Proxy]) -> None:
        shared = Clockwork(self._folder / "clock") if self._clocks else None
        self._client_clock = None if self.place.OWN_CLOCK else shared
        for number in range(self._workers):
            url, proxy, network = self.place.url, None, None
            if "cut" in self.place.FAULTS and number % 2:
                proxy = Proxy(self.place.url)
                if "wire" in self.place.FAULTS and self._wires:
                    network = Network()
                    self._networks.append(network)
                url = await proxy.start(*([] if network is None else [network.near]))
                proxies.append(proxy)
            clock = shared
            if shared is not None and self.place.OWN_CLOCK:  # half of them will do
                clock = None if number % 2 else Clockwork(self._folder / f"clock-{number}")
            slot = Slot(number, self._folder, url, self.place.environment, proxy, clock, network)
            self.slots.append(slot)
            self.fill(slot)

    async def _begin_client(self) -> asyncio.Task[None]:
        ours = {
            "CHAOS_URL": self.place.url,
            "CHAOS_FOLDER": str(self._folder),
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            **self.place.environment,
            **({} if self._client_clock is None else self._client_clock.environment()),
        }
        with (self._folder / "client.log").open("wb") as log:
            self._client = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.campaigns.chaos.client"),
                env={**os.environ, **ours},
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        return asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self._client.stdout is not None
        while line := (await self._client.stdout.readline()).decode().split():
            if line == ["over"]:
                self._over = True
            else:
                self._begun, self._ended = int(line[0]), int(line[1])
            self._progress.set()
        if not self._over:
            said = (self._folder / "client.log").read_text(errors="replace")[-3000:]
            self.problems.append(f"the client has ended by itself:\n{said}")
            self._over = True
            self._progress.set()

    def _say(self, line: str) -> None:
        assert self._client.stdin is not None
        self._client.stdin.write(f"{line}\n".encode())

    async def _refill(self) -> None:
        """A worker that cannot open its store ends; whoever runs it starts it again."""
        while True:
            await asyncio.sleep(0.2)
            for slot in self.slots:
                if not slot.disturbed and slot.died() is not None:
                    self.fill(slot)

    async def _until(self, done: object) -> None:
        """Wait for it, as long as runs come to their end."""
        assert callable(done)
        last = time.monotonic()
        while not done() and not self._over:
            self._progress.clear()
            try:
                await asyncio.wait_for(self._progress.wait(), 1.0)
                last = time.monotonic()
            except TimeoutError:
                if time.monotonic() - last > PATIENCE:
                    self.problems.append(f"{self._begun - self._ended} runs do not end")
                    return

    async def _collect(self, nemesis: Nemesis, seconds: float) -> Left:
        final: Dump
        final, integrity = await self.place.collect()
        evidence = Evidence(
            read(self._folder / "told", Told),
            read(self._folder / "effects", Effect),
            final,
            integrity,
            ALL_KINDS,
        )
        stalls = await asyncio.to_thread(read_stalls, self._folder / "stalls")
        ops = await asyncio.to_thread(read_ops, self._folder)
        return Left(
            evidence=evidence,
            ops=ops,
            faults=sorted([*nemesis.faults, *stalls], key=lambda fault: fault.begun),
            problems=self.problems,
            leaving=nemesis.leaving,
            seconds=seconds,
        )
