"""Failures: what has gone wrong with runs again and again in this process, as far as it is news.

A run that fails here may be driven elsewhere, and this process never hears of it. So what has not failed
for some time is forgotten, and a worker does not speak for ever of a run that has long ended.
"""

from __future__ import annotations

from outlast.ports.clock import Clock

MAX_KEPT = 1000
FORGOTTEN_AFTER = 5
"""Leases: a run that fails is tried again within one, and nobody else has had it then."""


class Failures:
    """How often in a row runs have failed, and why; for a process with leases of so many seconds."""

    def __init__(self, clock: Clock, lease: float) -> None:
        self._clock = clock
        self._kept_for = FORGOTTEN_AFTER * lease
        self._failed: dict[str, tuple[int, str, float]] = {}

    def add(self, run_id: str, error: str) -> int:
        """A run has failed; how often in a row it has now."""
        times, _, at = self._failed.pop(run_id, (0, "", 0.0))
        now = self._clock.monotonic()
        times = 1 if now - at > self._kept_for else times + 1
        self._failed[run_id] = (times, error, now)
        while len(self._failed) > MAX_KEPT:
            del self._failed[next(iter(self._failed))]
        return times

    def end(self, run_id: str) -> None:
        """It has not failed this time."""
        self._failed.pop(run_id, None)

    def lasting(self, times: int) -> dict[str, str]:
        """The runs that have failed at least so often, of late: how often, and why."""
        since = self._clock.monotonic() - self._kept_for
        return {
            run_id: f"{often} times in a row: {error}"
            for run_id, (often, error, at) in self._failed.items()
            if often >= times and at >= since
        }
