"""Watchdog: finds and reports runs of this process that are stuck.

A claimed run has something in flight (a step, a map, a check of a child id, a commit), or it waits for a message and is
soon parked. A run with an open step or map that nothing executes is stuck: that is a fault of the engine. Found twice
in a row, it is reported. Runs that are dropped again and again, and takeovers that keep failing, are reported, too.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from outlast.ports.clock import Clock

if TYPE_CHECKING:
    from outlast.engine.runner.claimer import Claimer
    from outlast.engine.runner.driver_pool import DriverPool

CHECK_INTERVAL_S = 1.0
FAILURES = 3
"""How many failures in a row are reported."""
MAX_REPORTED = 20
"""How many stuck runs a heartbeat contains."""

log = logging.getLogger("outlast.engine")


class Watchdog:
    """Checks the runs of one engine when their leases are renewed, at most every `CHECK_INTERVAL_S`."""

    def __init__(self, clock: Clock, drivers: DriverPool, claimer: Claimer) -> None:
        self._clock = clock
        self._drivers = drivers
        self._claimer = claimer
        self._next = 0.0
        self._doubtful: dict[str, list[str]] = {}
        self._stuck: dict[str, str] = {}

    @property
    def troubles(self) -> dict[str, str]:
        """The runs that are stuck here, and why."""
        failed = {
            run_id: f"{what}, {said}"
            for what, failures in (
                ("it was dropped", self._drivers.dropped),
                ("it could not be taken over", self._claimer.failing),
            )
            for run_id, said in failures.lasting(FAILURES).items()
        }
        return {**failed, **self._stuck}

    def check(self) -> None:
        """Check all runs that this process drives, if it is time."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + CHECK_INTERVAL_S
        found = self._drivers.stalled()
        stuck = {}
        for run_id, keys in found.items():
            if self._doubtful.get(run_id) == keys:
                names = ", ".join(map(repr, keys))
                stuck[run_id] = f"{names} is open, and its process does not execute it"
                if run_id not in self._stuck:
                    log.error(
                        "run %s is stuck: %s. Restart this worker, so that it starts again. This is a fault of "
                        "outlast: please report it with the output of `outlast export`",
                        run_id, stuck[run_id],
                    )  # fmt: skip
        self._doubtful, self._stuck = found, stuck


MAX_KEPT = 1000
FORGOTTEN_AFTER = 5
"""In leases: a run that fails here again does so within one."""


class Failures:
    """How often in a row runs have failed in this process, and why. An entry is forgotten after some leases: another
    process may drive the run by then, and this one does not learn of it."""

    def __init__(self, clock: Clock, lease: float) -> None:
        self._clock = clock
        self._kept_for = FORGOTTEN_AFTER * lease
        self._failed: dict[str, tuple[int, str, float]] = {}

    def add(self, run_id: str, error: str) -> int:
        """Count a failure of a run; how many in a row it has had."""
        times, _, at = self._failed.pop(run_id, (0, "", 0.0))
        now = self._clock.monotonic()
        times = 1 if now - at > self._kept_for else times + 1
        self._failed[run_id] = (times, error, now)
        while len(self._failed) > MAX_KEPT:
            del self._failed[next(iter(self._failed))]
        return times

    def end(self, run_id: str) -> None:
        """Forget the failures of a run."""
        self._failed.pop(run_id, None)

    def lasting(self, times: int) -> dict[str, str]:
        """The runs that recently failed at least so often in a row: how often, and why."""
        since = self._clock.monotonic() - self._kept_for
        return {
            run_id: f"{often} times in a row: {error}"
            for run_id, (often, error, at) in self._failed.items()
            if often >= times and at >= since
        }
