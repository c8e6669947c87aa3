"""Snapshots, what a replay skips, and errors that only a loop sees, broken."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant
from tests.mutants._engine import DIGEST, DRIVE, EXECUTION, HISTORY_LOADER, LOOP, PAST, REGION

TESTS = ("tests/unit/engine/test_snapshots.py",)

MUTANTS = [
    Mutant(
        "a snapshot forgets which attempt was alone",
        DIGEST,
        "    attempt: int = 0\n    alone: bool = False\n",
        "    attempt: int = 0\n",
        ("tests/unit/engine/test_replay_log.py",),
    ),
    Mutant(
        "what history holds counts as asked for just now",
        EXECUTION,
        "                operation.is_inherited = True\n",
        "                operation.is_inherited = False\n",
        TESTS,
    ),
    Mutant(
        "events enter a snapshot without their sequence",
        DIGEST,
        "        self._number(sequence)\n",
        "",
        TESTS,
    ),
    Mutant(
        "a second snapshot numbers its events as if nothing were consumed",
        DIGEST,
        "        first = last - len(self.events) + 1\n",
        "        first = 1\n",
        ("tests/unit/engine/test_replay_log.py",),
    ),
    Mutant(
        "a snapshot without sequences is read",
        HISTORY_LOADER,
        "snapshot.codec == CODEC",
        'snapshot.codec in (CODEC, "replay-log-1")',
        TESTS,
    ),
    Mutant(
        "a snapshot that is too large is written",
        DIGEST,
        "        if len(data) > MAX_PAYLOAD_BYTES:\n",
        "        if False:\n",
        TESTS,
    ),
    Mutant(
        "a store that refuses a snapshot halts the run",
        DRIVE,
        "            if commit.snapshot is None:\n",
        "            if True:\n",
        TESTS,
    ),
    Mutant(
        "a loop that can be undone is replayed from its beginning",
        PAST,
        "                if not payload.undoable:\n                    self.iterations",
        "                self.iterations.pop(event.step_name, None)\n"
        "                if not payload.undoable:\n                    self.iterations",
        TESTS,
    ),
    Mutant(
        "an error of a callback is swallowed",
        LOOP,
        "                        if not self._is_outcome(error):\n",
        "                        if False:\n",
        ("tests/unit/engine/test_loop_faults.py::test_a_callback_that_raises_parks_its_run",),
    ),
    Mutant(
        "what a task raises besides its outcome parks the run",
        LOOP,
        "                        if not self._is_outcome(error):\n",
        "                        if True:\n",
        ("tests/unit/engine/test_loop_faults.py::test_what_a_task_raises_is_its_outcome",),
    ),
    Mutant(
        "a life's last event stays where it was when others are left out",
        "engine/replay/history_reset.py",
        "_kept_until(events, last)) for",
        "min(last, len(events))) for",
        ("tests/unit/engine/test_lineage.py",),
    ),
    Mutant(
        "what still runs in a finished scope is forgotten",
        REGION,
        "inside.tasks_inside > 0 or execution",
        "execution",
        ("tests/unit/engine/test_scopes.py",),
    ),
    Mutant(
        "every process of a sweep draws the same random numbers",
        "testing/scenario_runner.py",
        'random.seed(f"{self._seed}, {name}" if len(self._processes) > 1 else 0)',
        "random.seed(0)",
        (
            "tests/unit/testing/test_crash_everywhere.py::test_what_was_found_by_chance_is_found_again[usual]",
        ),
    ),
]
