"""Where the engine is, and which tests may notice that it is broken."""

from __future__ import annotations

DRIVE = "engine/runner/run_driver.py"
UNDER_WAY = "engine/steps/in_flight.py"
TURN = "engine/replay/commit_builder.py"
ENDING = "engine/replay/completion.py"
CLAIMING = "engine/runner/claimer.py"
DRIVES = "engine/runner/driver_pool.py"
EXECUTION = "engine/replay/execution.py"
LOOP = "engine/replay/event_loop.py"
UNWINDING = "engine/replay/eviction.py"
PAST = "engine/replay/replay_log.py"
ARRIVALS = "engine/runner/inbox_reader.py"
MAPPING = "engine/steps/map_executor.py"
MAILBOX = "engine/runner/inbox_reader.py"
JOURNAL = "engine/runner/group_commit.py"
DIGEST = "engine/replay/replay_log.py"
HISTORY_LOADER = "engine/runner/history_loader.py"
STEP = "engine/operations/step.py"
MAP = "engine/operations/map.py"
CHILD = "engine/operations/child.py"
REGION = "engine/operations/scopes.py"
UNDO = "engine/operations/scopes.py"
CUT_OFF = "engine/steps/crash_isolation.py"
RETRY = "engine/definitions/retry.py"
TELLING = "context.py"
CLIENT = "client/handle.py"

CALM = "tests/corpus/test_corpus.py"
CRASH = "tests/corpus/test_crashes.py::test_a_crash_changes_nothing"
SLEPT = "tests/corpus/test_crashes.py::test_a_process_that_slept_past_its_lease_changes_nothing"
REPLAY = "tests/unit/engine/test_replay.py"
CONTROL = "tests/unit/engine/test_control.py"
WAKING = "tests/unit/engine/test_waking.py"


def cases(*ids: str) -> tuple[str, ...]:
    """These cases of the corpus, in memory, undisturbed."""
    return tuple(f"{CALM}::test_a_case[memory-{id}]" for id in ids)


def crashed(*ids: str) -> tuple[str, ...]:
    """These cases, with a process that dies."""
    return tuple(f"{CRASH}[{id}]" for id in ids)
