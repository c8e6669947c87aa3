"""FaultSchedule: the faults of a simulation, drawn from a seed.

Delays reorder concurrent calls. Faults lose requests and answers on the way to the store. An outage
fails all calls, all but renewals, or all writes for a time. A crash ends a process. A pause suspends
one for longer than its lease, so that it continues as a zombie.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from outlast.ports.store import Store
from outlast.testing.crashable_process import Crash, CrashableProcess
from outlast.testing.scenario_result import EffectLedger
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
    """How often each fault occurs. Rates are per store call; `mishap` is per process: the probability
    of a crash or a pause in its first `soon` seconds. `crashes` and `pauses` limit their number, so
    that the engine seldom gives up a step because of crashes. `outage` is the rate of outages of
    1 s to two leases, `outages` their limit. After `calls` calls the faults stop."""

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
    """Decides the next fault, for all processes of a simulation."""

    def __init__(
        self,
        seed: int,
        rates: FaultRates,
        clock: VirtualClock,
        lease: float,
        on_fault: Callable[[], None],
    ) -> None:
        self.clock = clock
        self.rates = rates
        self.on_fault = on_fault
        self.trace: list[str] = []
        self.crashes = 0
        self.pauses = 0
        self.faults = 0
        self._random = random.Random(seed)
        self._lease = lease
        self._calls = rates.calls
        self._outage = Outage(clock)
        self.outages = 0

    @property
    def is_calm(self) -> bool:
        """Whether the faults have stopped."""
        return self._calls <= 0

    def clear_up(self) -> None:
        """Stop the faults."""
        self._calls = 0

    def note(self, who: str, what: str) -> None:
        """Write a line of the trace, without random ids and addresses, so that two traces of one seed
        are equal."""
        self.trace.append(f"{self.clock.monotonic():.6f} {who}: {what}")

    def delay(self) -> float:
        """The delay of a call, in seconds."""
        if self.is_calm or self._random.random() >= self.rates.delays:
            return 0.0
        # Mostly short, sometimes long.
        return float(self._random.random() ** 4 * self.rates.longest_delay)

    def crash(self) -> Crash | None:
        """Whether the process crashes before or after this call, or not at all."""
        self._calls -= 1
        if not self._occurs(self.rates.crash, self.crashes < self.rates.crashes):
            return None
        self.crashes += 1
        return self._random.choice((Crash.BEFORE, Crash.AFTER))

    def pause(self) -> float:
        """How long the process is suspended at this call, in seconds."""
        if not self._occurs(self.rates.pause, self.pauses < self.rates.pauses):
            return 0.0
        return self._pause_seconds()

    def mishap(self) -> tuple[float, float] | None:
        """The mishap of a new process: when, and for how long it is suspended, or 0 for a crash."""
        if not self._occurs(self.rates.mishap, True):
            return None
        when = self._random.random() * self.rates.soon
        if self.pauses < self.rates.pauses and self._random.random() < 0.5:
            return when, self._pause_seconds()
        if self.crashes < self.rates.crashes:
            self.crashes += 1
            return when, 0.0
        return None

    def _occurs(self, rate: float, allowed: bool) -> bool:
        return allowed and not self.is_calm and self._random.random() < rate

    def _pause_seconds(self) -> float:
        self.pauses += 1
        return self._lease * self._random.uniform(0.5, 4.0)

    def fault(self, site: Site) -> Fault | None:
        """The fault of a call (the plan of a `FaultyStore`)."""
        if self.is_calm:
            return None
        if self._occurs(self.rates.outage, self.outages < self.rates.outages):
            self._start_outage()
        if (missed := self._outage.fault(site)) is not None:
            return missed
        dice = self._random.random()
        for fault, rate in self.rates.faults.items():
            if dice < rate:
                self.faults += 1
                return fault
            dice -= rate
        return None

    def _start_outage(self) -> None:
        self.outages += 1
        seconds = self._random.uniform(1.0, 2 * self._lease)
        kind = self._random.choice(("all", "all but renewals", "locked"))
        self.note("the store", f"has an outage, {kind}, for {seconds:.3f} s")
        if kind == "locked":
            self._outage.begin(seconds, Fault.REFUSED, only=WRITES)
        else:
            self._outage.begin(seconds, but=() if kind == "all" else {"renew"})
        self.on_fault()

    def replacement(self) -> float:
        """How long until a crashed process is replaced."""
        return self._random.uniform(0.0, self._lease)


class FaultyProcess(CrashableProcess):
    """A process whose calls follow a fault schedule."""

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        ledger: EffectLedger,
        schedule: FaultSchedule,
        *,
        name: str,
    ) -> None:
        self._schedule = schedule
        self._suspended_until = 0.0
        super().__init__(
            store, clock, ledger, name=name, crash_point=lambda number, what: schedule.crash()
        )

    def connect(self, store: Store) -> Store:
        async def pause() -> None:
            await self._schedule.clock.sleep(self._schedule.delay())

        return FaultyStore(store, self._schedule, pause=pause)

    @property
    def is_paused(self) -> bool:
        """Whether the process is suspended."""
        left = self._suspended_until - self._schedule.clock.monotonic()
        return not self.dead and left > MICROSECOND

    def die(self) -> None:
        if not self.dead:
            self._schedule.on_fault()
        super().die()

    def suspend(self, seconds: float) -> None:
        """Make no call and see no time pass for `seconds`."""
        self._schedule.on_fault()
        self.ledger.zombies.add(self.name)
        self._suspended_until = self._schedule.clock.monotonic() + seconds

    async def meet(self, when: float, still: float) -> None:
        """Crash or be suspended at a time, whatever the process does then."""
        await self._schedule.clock.sleep(when)
        if self.dead or self._schedule.is_calm:
            return
        if still:
            self._schedule.note(self.name, f"is suspended for {still:.3f} s")
            self.suspend(still)
        else:
            self._schedule.note(self.name, "crashes")
            self.die()

    def next_crash(self, what: str) -> Crash | None:
        pause = self._schedule.pause()
        if pause:
            self.suspend(pause)
        crash = super().next_crash(what)
        fault = f", {crash}" if crash else f", suspended for {pause:.3f} s" if pause else ""
        self._schedule.note(self.name, f"{what}{fault}")
        return crash

    async def ensure_alive(self) -> None:
        await super().ensure_alive()
        clock = self._schedule.clock
        delay = self._schedule.delay()
        while delay > 0 or self.is_paused:
            await clock.sleep(max(delay, self._suspended_until - clock.monotonic()))
            await super().ensure_alive()
            delay = 0.0
