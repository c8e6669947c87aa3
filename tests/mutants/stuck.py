"""Whatever keeps runs from being stuck in silence, broken: rejections, claims by code, the watchdog."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

REJECTIONS = "engine/runner/stuck_runs.py"
CLAIMING = "engine/runner/claimer.py"
TESTS = ("tests/unit/engine/test_rejections.py",)
CODE = "test_code_that_has_rejected_a_run_is_not_handed_it_again"
WATCHDOG = ("tests/unit/engine/test_watchdog.py",)

MUTANTS = [
    # -- rejections ------------------------------------------------------------------------------
    Mutant(
        "one broken deploy parks every run",
        REJECTIONS,
        "        others = [] if park else await self.untried(run.workflow, codes)\n",
        "        others: list[Worker] = []\n",
        TESTS,
    ),
    Mutant(
        "a run is left to workers that are dead",
        REJECTIONS,
        "            self._live = [worker for worker in known if worker.is_alive(now)]\n",
        "            self._live = list(known)\n",
        TESTS,
    ),
    Mutant(
        "a worker that began while a run was parked never gets it",
        REJECTIONS,
        "        if not park and await self.untried(run.workflow, codes, reload=True):\n",
        "        if park and await self.untried(run.workflow, codes, reload=True):\n",
        TESTS,
    ),
    Mutant(
        "new code does not take up what is parked",
        CLAIMING,
        "            parked = await self._rejections.parked_for_others(room)\n",
        "            parked: list[str] = []\n",
        TESTS,
    ),
    Mutant(
        "a run that was left to a worker which died stays where it is",
        CLAIMING,
        "            return await self.claim(room, rejected=True)\n",
        "            return await self.claim(room)\n",
        TESTS,
    ),
    Mutant(
        "a store that fails is taken for code that does not fit",
        CLAIMING,
        "            if isinstance(problem, TRANSIENT) and not isinstance(problem, Undecodable):\n",
        "            if isinstance(problem, Fenced):\n",
        TESTS,
    ),
    Mutant(
        "code is not told apart by the constants that it reads",
        "engine/definitions/definition.py",
        '        parts.append(f"{name}={value!r}" if isinstance(value, PLAIN) else name)\n',
        "        parts.append(name)\n",
        TESTS,
    ),
    # -- claims ----------------------------------------------------------------------------------
    Mutant(
        "memory hands code what it has rejected",
        "stores/memory/claims.py",
        " and run.runnable_at <= now and run.may_try(code)\n",
        " and run.runnable_at <= now\n",
        (f"tests/stores/conformance/test_memory.py::TestMemoryStore::{CODE}",),
    ),
    Mutant(
        "SQLite hands code what it has rejected",
        "stores/sqlite/claims.py",
        '                "code": request.code,\n',
        '                "code": None,\n',
        ("tests/stores/conformance/test_sqlite.py",),
    ),
    Mutant(
        "SQLite hands code what it has rejected, when its owner has died",
        "stores/sqlite/claims.py",
        '{"now": now, "code": request.code}',
        '{"now": now, "code": None}',
        ("tests/stores/conformance/test_sqlite.py",),
    ),
    Mutant(
        "PostgreSQL hands code what it has rejected",
        "stores/postgres/claims.py",
        "            code,\n            self.database",
        "            None,\n            self.database",
        ("tests/stores/postgres/test_conformance.py",),
    ),
    Mutant(
        "Redis hands code what it has rejected",
        "stores/redis/lua/claim_runs.lua",
        "    return not was_rejected(run)\n",
        "    return true\n",
        ("tests/stores/redis/test_store.py",),
    ),
    Mutant(
        "Redis finds nothing behind runs that were rejected",
        "stores/redis/claims.py",
        "        refused.update({one.id for one in found} - {one.run.id for one in got})\n",
        "",
        ("tests/stores/redis/test_store.py",),
    ),
    # -- crash isolation ---------------------------------------------------------------------------
    Mutant(
        "what dies in a group is taken for the cause",
        "engine/operations/step.py",
        "    return interruptions >= (MAX_INTERRUPTIONS if alone else MAX_SHARED)\n",
        "    return interruptions >= MAX_INTERRUPTIONS\n",
        ("tests/campaigns/engine_kills/test_suspects.py",),
    ),
    Mutant(
        "suspects begin one after the other",
        "engine/steps/crash_isolation.py",
        "            size *= 2\n",
        "            size *= 1\n",
        ("tests/campaigns/engine_kills/test_suspects.py",),
    ),
    Mutant(
        "a runaway step keeps its process from ending",
        "engine/steps/step_executor.py",
        "name=self._name, daemon=True)",
        "name=self._name)",
        ("tests/unit/engine/test_runaways.py",),
    ),
    Mutant(
        "a lease that was lost is taken for a death",
        "engine/operations/step.py",
        "        if self.lease_loss_count > MAX_LOST:\n",
        "        if self.lease_loss_count > 99:\n",
        ("tests/unit/engine/test_lease_loss.py",),
    ),
    # -- cancels ---------------------------------------------------------------------------------
    Mutant(
        "a cancel that no worker can obey is acknowledged",
        "client/handle.py",
        "            raise CodeMissing(run.id, run.workflow, max(len(live), 1))\n",
        "            return\n",
        ("tests/unit/engine/test_missing_code.py",),
    ),
    Mutant(
        "a cancel is refused while no worker lives",
        "client/handle.py",
        "        if (live or workflows) and not any(",
        "        if not any(",
        ("tests/unit/engine/test_missing_code.py",),
    ),
    Mutant(
        "a worker speaks for ever of a run that it failed on",
        "engine/runner/stuck_runs.py",
        "            if often >= times and at >= since\n",
        "            if often >= times\n",
        WATCHDOG,
    ),
    # -- the watchdog ----------------------------------------------------------------------------
    Mutant(
        "a step for which nothing is done is not found",
        "engine/steps/in_flight.py",
        "        return [\n            key\n            for key, operation in self._execution.open.items()\n",
        "        return [\n            key\n            for key, operation in ()\n",
        WATCHDOG,
    ),
    Mutant(
        "a map for which nothing is done is not found",
        "engine/steps/in_flight.py",
        "            and (key not in self._maps or self._maps[key].is_stalled)\n",
        "            and key not in self._maps\n",
        WATCHDOG,
    ),
    Mutant(
        "a run that is dropped again and again is not reported",
        "engine/runner/driver_pool.py",
        "            times = self.dropped.add(run_id, repr(task.exception()))\n",
        "            times = 1\n",
        WATCHDOG,
    ),
    Mutant(
        "takeovers that fail are not counted",
        "engine/runner/stuck_runs.py",
        "        times = 1 if now - at > self._kept_for else times + 1\n",
        "        times = 1\n",
        WATCHDOG,
    ),
]
