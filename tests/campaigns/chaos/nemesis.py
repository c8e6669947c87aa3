"""Nemesis: what is done to workers, to their way to the store, to their clocks, and to the store.

Faults overlap: one begins while others are still going on, but never two to the same worker.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from tests.campaigns.chaos.ledgers import Fault
from tests.campaigns.chaos.places import Place
from tests.campaigns.chaos.workers import Slot
from tests.campaigns.chaos.workflows import LEASE

HOUR = 3600.0
SEEN = 1.5
"""Seconds until everybody has seen that the clock was set."""
SETBACK = 5.0
"""Seconds that the clock of a whole machine goes back: leases and timers wait for so long."""


class Hand(Protocol):
    """What the nemesis needs of a round."""

    place: Place
    slots: list[Slot]

    async def until_begun(self, count: float) -> None:
        """Return when the client has begun so many runs."""
        ...

    def fill(self, slot: Slot) -> None:
        """Put a new worker into a slot."""
        ...

    def begin(self, kind: str) -> None:
        """Have the client begin a run at once."""
        ...


class Nemesis:
    """Does so many faults, one for `every` so many runs that are begun, of all kinds in turn."""

    def __init__(
        self,
        hand: Hand,
        chance: random.Random,
        kinds: Sequence[str],
        *,
        faults: int,
        every: float,
    ) -> None:
        self._hand = hand
        self._kinds = kinds
        self._chance = chance
        self._faults = faults
        self._every = every
        self._offset = 0.0
        self._store = asyncio.Lock()
        self.faults: list[Fault] = []
        self.leaving: list[float] = []
        """How long workers took that were told to stop."""

    @property
    def counts(self) -> Counter[str]:
        """How often what was done."""
        return Counter(fault.what for fault in self.faults)

    async def strike(self) -> None:
        """All of them, and return when the last is over."""
        kinds: list[str] = []
        async with asyncio.TaskGroup() as going_on:
            for number in range(self._faults):
                if not kinds:
                    kinds = self._chance.sample(self._kinds, len(self._kinds))
                what = kinds.pop()
                await self._hand.until_begun(number * self._every)
                slot = await self._undisturbed(what)
                going_on.create_task(self._do(what, slot))
                await asyncio.sleep(self._chance.uniform(0.1, 0.9))

    async def _undisturbed(self, what: str) -> Slot:
        """A worker to whom nothing is being done. At least half are left alone at any time."""
        slots = self._hand.slots
        needs = {"cut": "proxy", "part": "proxy", "clock": "clock", "wire": "network"}.get(
            what, "life"
        )
        while True:
            free = [slot for slot in slots if not slot.disturbed]
            fit = [slot for slot in free if getattr(slot, needs) is not None]
            if what == "kill":  # the death of one that holds nothing shows nothing
                fit = [slot for slot in fit if slot.at_work]
            if fit and 2 * len(free) > len(slots):
                return self._chance.choice(fit)
            await asyncio.sleep(0.05)

    async def _do(self, what: str, slot: Slot) -> None:
        to_one: dict[str, Callable[[Slot], Awaitable[None]]] = {
            "kill": self._kill,
            "stop": self._stop,
            "term": self._term,
            "grip": self._grip,
            "cut": self._cut,
            "part": self._part,
            "wire": self._wire,
        }
        if self._hand.place.OWN_CLOCK:
            to_one["clock"] = self._clock
        if what not in to_one:
            async with self._store:  # one thing at a time
                begun = time.monotonic_ns()
                await self._do_to_all(what)
                self.faults.append(Fault(what, None, begun, time.monotonic_ns()))
            return
        begun, life = time.monotonic_ns(), slot.life
        slot.disturbed = True
        try:
            await to_one[what](slot)
        finally:
            slot.disturbed = False
            self.faults.append(Fault(what, life, begun, time.monotonic_ns()))

    async def _do_to_all(self, what: str) -> None:
        if what == "clock":
            await self._clocks()
        else:
            await asyncio.to_thread(self._hand.place.disturb, what, self._chance, LEASE)

    async def _kill(self, slot: Slot) -> None:
        slot.kill()
        self.faults.append(Fault("killed", slot.life, time.monotonic_ns(), time.monotonic_ns()))
        await asyncio.sleep(self._chance.uniform(0, LEASE))
        self._hand.fill(slot)

    async def _stop(self, slot: Slot) -> None:
        """It stands still past its lease, and goes on as if nothing had happened."""
        slot.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(LEASE * self._chance.uniform(1.1, 2.0))
        finally:
            slot.send(signal.SIGCONT)

    async def _term(self, slot: Slot) -> None:
        begun = time.monotonic_ns()
        took = await slot.leave(undisturbed=False)
        if not self._overlaps(begun, time.monotonic_ns(), "restart", "lock"):
            self.leaving.append(took)
        self._hand.fill(slot)

    def _overlaps(self, begun: int, ended: int, *kinds: str) -> bool:
        return any(
            fault.what in kinds and fault.begun <= ended and begun <= fault.ended
            for fault in self.faults
        )

    async def _grip(self, _: Slot) -> None:
        self._hand.begin("grips")

    async def _clock(self, slot: Slot) -> None:
        """One machine's clock is an hour off for a while."""
        assert slot.clock is not None
        slot.clock.set(self._chance.choice((-HOUR, HOUR)))
        try:
            await asyncio.sleep(SEEN + self._chance.uniform(0.5, 2.0) * LEASE)
        finally:
            slot.clock.set(0)

    async def _clocks(self) -> None:
        """The one clock that all live by is set: an hour ahead, or a little back."""
        self._offset += self._chance.choice((HOUR, -SETBACK))
        for slot in self._hand.slots:
            if slot.clock is not None:
                slot.clock.set(self._offset)
        await asyncio.sleep(SEEN)

    async def _cut(self, slot: Slot) -> None:
        """Its connections end: at once, or in the middle of what they carry."""
        assert slot.proxy is not None
        if self._chance.random() < 0.3:
            slot.proxy.cut()
        else:
            upstream = self._chance.random() < 0.5
            slot.proxy.arm(left=self._chance.randrange(1, 6000), upstream=upstream)

    async def _wire(self, slot: Slot) -> None:
        """Its wire is pulled out past the lease, and put in again: what was sent meanwhile is lost,
        or comes late, as the kernel has it."""
        assert slot.network is not None
        slot.network.pull()
        try:
            await asyncio.sleep(LEASE * self._chance.uniform(1.1, 2.0))
        finally:
            slot.network.plug()

    async def _part(self, slot: Slot) -> None:
        """Nothing gets through, in either direction; afterwards what was held back may, or not."""
        assert slot.proxy is not None
        slot.proxy.part()
        try:
            await asyncio.sleep(LEASE * self._chance.uniform(0.5, 2.0))
        finally:
            if self._chance.random() < 0.5:
                slot.proxy.cut()
            slot.proxy.mend()
