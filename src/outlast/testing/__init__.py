"""For tests of workflows: an app in memory on a virtual clock, a crash sweep, replay of stored
histories, fixtures for pytest. Authors of stores and queues find their tools in `outlast.testkit`."""

from outlast.testing.crash_sweep import (
    RESIDENCIES,
    CrashesDiffer,
    CrashSweep,
    ResidencyPolicy,
    crash_everywhere,
)
from outlast.testing.crashable_process import Crash
from outlast.testing.history_replay import ReplayResult, assert_replays, replay
from outlast.testing.scenario_runner import At
from outlast.testing.virtual_app import Stuck, VirtualApp, app
from outlast.testing.virtual_clock import ManualClock, VirtualClock, sleep

__all__ = [
    "RESIDENCIES",
    "At",
    "Crash",
    "CrashSweep",
    "CrashesDiffer",
    "ManualClock",
    "ReplayResult",
    "ResidencyPolicy",
    "Stuck",
    "VirtualApp",
    "VirtualClock",
    "app",
    "assert_replays",
    "crash_everywhere",
    "replay",
    "sleep",
]
