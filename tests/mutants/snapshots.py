"""Snapshots and what a replay skips, broken."""

from __future__ import annotations

from outlast.testing.mutation import Mutant
from tests.mutants._engine import DIGEST, DRIVE, EXECUTION, PAST

TESTS = ("tests/engine/test_snapshots.py",)

MUTANTS = [
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
        "        n=sequence,\n",
        "        n=event.sequence,\n",
        TESTS,
    ),
    Mutant(
        "a snapshot without sequences is read",
        DIGEST,
        "snapshot.codec == CODEC",
        'snapshot.codec in (CODEC, "digest-1")',
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
]
