"""What tests need: an app in memory on a clock that leaps, crashes everywhere, replay of stored
histories; and for authors of stores and queues a clock that stands still, faults, a checker and the
conformance kit."""

from outlast.testing.clock import ManualClock
from outlast.testing.crash_sweep import CrashesDiffer, Sweep, crash_everywhere
from outlast.testing.crashable_process import Crash
from outlast.testing.history_replay import Replayed, assert_replays, replay
from outlast.testing.residency import RESIDENCIES, ResidencyPolicy
from outlast.testing.scenario_runner import At
from outlast.testing.virtual_app import Stuck, VirtualApp, app
from outlast.testing.virtual_clock import VirtualClock, sleep

__all__ = [
    "RESIDENCIES",
    "At",
    "Crash",
    "CrashesDiffer",
    "ManualClock",
    "Replayed",
    "ResidencyPolicy",
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
