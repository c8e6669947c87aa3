"""Watchdog: finds runs of this process that are stuck, and says so: no run waits in silence for what cannot come.

A run that is held has something in flight here (a body, a map, a look for a child, an outcome that is being
written) or it waits for what others send, and then it is not held for long. One that has an open step or map
for which nothing is done is stuck: an engine that works never has one. Found twice in a row, it is reported.
Runs that are dropped again and again, and takeovers that fail because of the store, are reported, too.
"""

from __future__ import annotations

import logging

from outlast.engine.runner.claimer import Claimer
from outlast.engine.runner.driver_pool import DriverPool
from outlast.ports.clock import Clock

CHECK_INTERVAL_S = 1.0
FAILURES = 3
"""So many have to fail in a row before that is reported."""
MAX_REPORTED = 20
"""Runs that a worker tells of itself: its word stays short."""

log = logging.getLogger("outlast.engine")


class Watchdog:
    """Looks at the runs of one engine when their leases are renewed, at most every `CHECK_INTERVAL_S`."""

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
        """Look at all runs that are held, if it is time."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + CHECK_INTERVAL_S
        found = self._drivers.stalled()
        stuck = {}
        for run_id, keys in found.items():
            if self._doubtful.get(run_id) == keys:
                names = ", ".join(map(repr, keys))
                stuck[run_id] = f"{names} is open, and nothing in its process does anything for it"
                if run_id not in self._stuck:
                    log.error(
                        "run %s is stuck: %s. Restart this worker, so that what is open begins again. This is "
                        "a fault of outlast: please report it with the output of `outlast export`",
                        run_id, stuck[run_id],
                    )  # fmt: skip
        self._doubtful, self._stuck = found, stuck
