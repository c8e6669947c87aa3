"""Where the engine is, and which tests may notice that it is broken."""

from __future__ import annotations

DRIVE = "engine/drive.py"
UNDER_WAY = "engine/under_way.py"
TURN = "engine/turn.py"
ENDING = "engine/ending.py"
CLAIMING = "engine/claiming.py"
DRIVES = "engine/driving.py"
EXECUTION = "engine/execution.py"
LOOP = "engine/loop.py"
UNWINDING = "engine/unwinding.py"
PAST = "engine/past.py"
ARRIVALS = "engine/arrivals.py"
MAPPING = "engine/mapping.py"
MAILBOX = "engine/mailbox.py"
JOURNAL = "engine/journal.py"
DIGEST = "engine/digest.py"
STEP = "engine/operations/step.py"
MAP = "engine/operations/map.py"
CHILD = "engine/operations/child.py"
REGION = "engine/operations/region.py"
UNDO = "engine/operations/compensation.py"
CUT_OFF = "engine/interruptions.py"
RETRY = "engine/retry.py"
TELLING = "api/telling.py"
CLIENT = "client/client.py"

CALM = "tests/corpus/test_corpus.py"
CRASH = "tests/corpus/test_crashes.py::test_a_crash_changes_nothing"
SLEPT = "tests/corpus/test_crashes.py::test_a_process_that_slept_past_its_lease_changes_nothing"
REPLAY = "tests/engine/test_replay.py"
CONTROL = "tests/engine/test_control.py"
WAKING = "tests/engine/test_waking.py"


def cases(*ids: str) -> tuple[str, ...]:
    """These cases of the corpus, in memory, undisturbed."""
    return tuple(f"{CALM}::test_a_case[memory-{id}]" for id in ids)


def crashed(*ids: str) -> tuple[str, ...]:
    """These cases, with a process that dies."""
    return tuple(f"{CRASH}[{id}]" for id in ids)
