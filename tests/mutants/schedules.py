"""Schedules and the relay of a wakeup_channel, broken."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

RELAY = "worker/wakeup_relay.py"
WORKFLOW = "schedules/schedule_workflow.py"
TIMING = "schedules/timing.py"
RINGING = ("tests/unit/worker/test_wakeup_relay.py",)
KEEPING = ("tests/unit/schedules/test_keeping.py",)
TIMING_TESTS = ("tests/unit/schedules/test_timing.py",)

MUTANTS = [
    Mutant(
        "work that nobody has is not woken for",
        RELAY,
        "if is_new or (wants and not gone_on):",
        "if wants and not gone_on and False:",
        RINGING,
    ),
    Mutant(
        "a message is deleted though its work is left",
        RELAY,
        "left=left != NOTHING and not is_new",
        "left=False",
        RINGING,
    ),
    Mutant(
        "a lost wake-up is never made anew",
        RELAY,
        "wants = self._repeats.wants(left, self._store.clock.monotonic())",
        "wants = False",
        RINGING,
    ),
    Mutant(
        "work that nobody can take gets a wake-up without end",
        RELAY,
        "self._again_at = now + self._backoff.next_s()",
        "self._again_at = now + FIRST_REPEAT_S",
        RINGING,
    ),
    Mutant(
        "a run left to others asks for its first step twice",
        "engine/steps/crash_isolation.py",
        "operation in execution.launches or not operation.is_inherited",
        "operation in execution.launches or not operation.recorded",
        ("tests/unit/worker/test_remote_steps.py",),
    ),
    Mutant(
        "catching up stops at one",
        WORKFLOW,
        "due(spec, state.cursor, now, spec.max_made_up)",
        "due(spec, state.cursor, now, 1)",
        KEEPING,
    ),
    Mutant(
        "what fell into a pause is made up",
        WORKFLOW,
        "                # Firings during the pause are not made up.\n"
        "                state.cursor = max(state.cursor, context.now())\n",
        "                pass\n",
        KEEPING,
    ),
    Mutant(
        "runs of a schedule overlap",
        WORKFLOW,
        "            if not busy:\n                await fire([moment])",
        "            if True:\n                await fire([moment])",
        KEEPING,
    ),
    Mutant(
        "a firing that is late is not missed",
        WORKFLOW,
        "> MISSED_AFTER",
        "> MISSED_AFTER * 10**6",
        KEEPING,
    ),
    Mutant(
        "clocks that change by half an hour lose a firing",
        TIMING,
        'if zone is not UTC and (minute[0] == "*" or hour[0] == "*"):',
        'if minute == "never":',
        TIMING_TESTS,
    ),
    Mutant(
        "a firing that waited is made within a pause",
        WORKFLOW,
        "return not state.paused  # an update",
        "return True  # since",
        KEEPING,
    ),
    Mutant(
        "the hour that comes twice fires twice",
        TIMING,
        "if moment > after:  # where",
        "if True:  # where",
        TIMING_TESTS,
    ),
    Mutant(
        "jitter is not the same for everybody",
        TIMING,
        'digest = hashlib.sha256(f"{spec.name}@{moment.isoformat()}".encode()).digest()',
        'digest = hashlib.sha256(f"{spec.name}".encode()).digest()',
        TIMING_TESTS,
    ),
    Mutant(
        "a bulk command ends schedules",
        "cli/bulk.py",
        "parse(text).without_schedules(), session.out",
        "parse(text), session.out",
        ("tests/unit/cli/test_schedules.py",),
    ),
    Mutant(
        "a schedule that is paused without a worker looks active",
        "schedules/client.py",
        "                paused = request.paused\n",
        "                pass\n",
        ("tests/unit/schedules/test_keeping.py",),
    ),
]
