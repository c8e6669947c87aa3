"""FaultSchedule: what a simulation's processes have to live through, drawn from a seed.

Delays reorder everything that may be reordered. Faults lose requests and answers on the way to the
store; an outage keeps all calls, or all but renewals, or all writes from it for a time. A crash ends a process; a pause stops one for longer than its lease, so that it goes on as a
zombie: others have taken over what it still believes to own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from outlast.ports.store import Store
from outlast.testing.crashable_process import Crash, Process
from outlast.testing.effect_ledger import Ledger
from outlast.testing.virtual_clock import VirtualClock
from outlast.testkit.faults import Fault, FaultyStore, Outage, Site

FAULTS = {
    Fault.REFUSED: 0.02,
    Fault.LOST_REQUEST: 0.02,
    Fault.LOST_ANSWER: 0.03,
    Fault.DUPLICATED: 0.01,
    Fault.DELAYED: 0.05,
}
MICROSECOND = 1e-6


@dataclass(frozen=True)
class FaultRates:
    """How rough it is. Rates are for each call of the store, and `mishap` is for each process: that
    something befalls it in its first `soon` seconds, whatever it is doing. `crashes` and `pauses`
    are how many there are at most, so that steps are seldom cut off more often than the engine
    puts up with. `outage` is the rate of outages of 1 s to two leases, and `outages` how many there are
    at most. After `calls` calls it is calm, and everything has to come to its end."""

    processes: int = 2
    delays: float = 0.2
    longest_delay: float = 2.0
    faults: Mapping[Fault, float] = field(default_factory=lambda: dict(FAULTS))
    crash: float = 0.02
    crashes: int = 2
    pause: float = 0.01
    pauses: int = 1
    mishap: float = 0.7
    soon: float = 40.0
    calls: int = 300
    outage: float = 0.0
    outages: int = 0


CALM = FaultRates(processes=1, delays=0, faults={}, crash=0, pause=0, mishap=0)
STORM = FaultRates()
OUTAGES = FaultRates(outage=0.05, outages=3, crash=0, pause=0, mishap=0.2)
WRITES = frozenset({"commit", "send"})


class FaultSchedule:
    """What happens next. One for all processes of a simulation, which ask in turn."""

    def __init__(
        self,
        seed: int,
        climate: FaultRates,
        clock: VirtualClock,
        lease: float,
        struck: Callable[[], None],
    ) -> None:
        self.clock = clock
        self.climate = climate
        self.struck = struck
        self.trace: list[str] = []
        self.crashes = 0
        self.pauses = 0
        self.faults = 0
        self._random = random.Random(seed)
        self._lease = lease
        self._calls = climate.calls
        self._outage = Outage(clock)
        self.outages = 0

    @property
    def is_calm(self) -> bool:
        """Whether nothing bad happens any more."""
        return self._calls <= 0

    def clear_up(self) -> None:
        """Be calm from now on."""
        self._calls = 0

    def note(self, who: str, what: str) -> None:
        """Write a line of the trace. It has no ids and no addresses, so that two traces of one
        seed are the same to the letter."""
        self.trace.append(f"{self.clock.monotonic():.6f} {who}: {what}")

    def delay(self) -> float:
        """How long to wait before going on, in seconds."""
        if self.is_calm or self._random.random() >= self.climate.delays:
            return 0.0
        # Mostly short, sometimes long.
        return float(self._random.random() ** 4 * self.climate.longest_delay)

    def crash(self) -> Crash | None:
        """Whether the process dies at this call, and on which side of it."""
        self._calls -= 1
        if not self._befalls(self.climate.crash, self.crashes < self.climate.crashes):
            return None
        self.crashes += 1
        return self._random.choice((Crash.BEFORE, Crash.AFTER))

    def pause(self) -> float:
        """How long the process stands still at this call, in seconds."""
        if not self._befalls(self.climate.pause, self.pauses < self.climate.pauses):
            return 0.0
        return self._stillness()

    def mishap(self) -> tuple[float, float] | None:
        """What will befall a process that begins: when, and for how long it stands still, or 0
        if it dies."""
        if not self._befalls(self.climate.mishap, True):
            return None
        when = self._random.random() * self.climate.soon
        if self.pauses < self.climate.pauses and self._random.random() < 0.5:
            return when, self._stillness()
        if self.crashes < self.climate.crashes:
            self.crashes += 1
            return when, 0.0
        return None

    def _befalls(self, rate: float, allowed: bool) -> bool:
        return allowed and not self.is_calm and self._random.random() < rate

    def _stillness(self) -> float:
        self.pauses += 1
        return self._lease * self._random.uniform(0.5, 4.0)

    def fault(self, site: Site) -> Fault | None:
        """What goes wrong with a call (the plan of a `FaultyStore`)."""
        if self.is_calm:
            return None
        if self._befalls(self.climate.outage, self.outages < self.climate.outages):
            self._begin_outage()
        if (missed := self._outage.fault(site)) is not None:
            return missed
        dice = self._random.random()
        for fault, rate in self.climate.faults.items():
            if dice < rate:
                self.faults += 1
                return fault
            dice -= rate
        return None

    def _begin_outage(self) -> None:
        self.outages += 1
        seconds = self._random.uniform(1.0, 2 * self._lease)
        kind = self._random.choice(("all", "all but renewals", "locked"))
        self.note("the store", f"is away, {kind}, for {seconds:.3f} s")
        if kind == "locked":
            self._outage.begin(seconds, Fault.REFUSED, only=WRITES)
        else:
            self._outage.begin(seconds, but=() if kind == "all" else {"renew"})
        self.struck()

    def replacement(self) -> float:
        """How long it takes until somebody starts another process."""
        return self._random.uniform(0.0, self._lease)


class FaultyProcess(Process):
    """A process out in the weather."""

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        ledger: Ledger,
        weather: FaultSchedule,
        *,
        name: str,
    ) -> None:
        self._weather = weather
        self._still_until = 0.0
        super().__init__(store, clock, ledger, name=name, doom=lambda number, what: weather.crash())

    def reach(self, store: Store) -> Store:
        async def pause() -> None:
            await self._weather.clock.sleep(self._weather.delay())

        return FaultyStore(store, self._weather, pause=pause)

    @property
    def is_paused(self) -> bool:
        """Whether it stands still."""
        left = self._still_until - self._weather.clock.monotonic()
        return not self.dead and left > MICROSECOND

    def die(self) -> None:
        if not self.dead:
            self._weather.struck()
        super().die()

    def stand_still(self, seconds: float) -> None:
        """Make no call and see no time pass for so long."""
        self._weather.struck()
        self.ledger.zombies.add(self.name)
        self._still_until = self._weather.clock.monotonic() + seconds

    async def meet(self, when: float, still: float) -> None:
        """Meet a mishap, wherever it is then."""
        await self._weather.clock.sleep(when)
        if self.dead or self._weather.is_calm:
            return
        if still:
            self._weather.note(self.name, f"stands still for {still:.3f} s")
            self.stand_still(still)
        else:
            self._weather.note(self.name, "dies")
            self.die()

    def fate(self, what: str) -> Crash | None:
        pause = self._weather.pause()
        if pause:
            self.stand_still(pause)
        crash = super().fate(what)
        told = f"{what}, {crash}" if crash else f"{what}, then still for {pause:.3f} s"
        self._weather.note(self.name, told if crash or pause else what)
        return crash

    async def alive(self) -> None:
        await super().alive()
        clock = self._weather.clock
        delay = self._weather.delay()
        while delay > 0 or self.is_paused:
            await clock.sleep(max(delay, self._still_until - clock.monotonic()))
            await super().alive()
            delay = 0.0
