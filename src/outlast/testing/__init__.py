"""What tests need: an app in memory on a clock that leaps, crashes everywhere, replay of stored
histories; and for authors of stores and queues a clock that stands still, faults, a checker and the
conformance kit."""

from outlast.testing.clock import ManualClock
from outlast.testing.conducting import At
from outlast.testing.crash import CrashesDiffer, Sweep, crash_everywhere
from outlast.testing.embedded import Stuck, VirtualApp, app
from outlast.testing.mortal import Crash
from outlast.testing.replaying import Replayed, assert_replays, replay
from outlast.testing.residencies import RESIDENCIES, Residency
from outlast.testing.virtual import VirtualClock, sleep

__all__ = [
    "RESIDENCIES",
    "At",
    "Crash",
    "CrashesDiffer",
    "ManualClock",
    "Replayed",
    "Residency",
    "Stuck",
    "Sweep",
    "VirtualApp",
    "VirtualClock",
    "app",
    "assert_replays",
    "crash_everywhere",
    "replay",
    "sleep",
]
