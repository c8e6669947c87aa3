"""Patience with the store, broken: commits, leases, reads and locks that are given up too early."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant
from tests.mutants._engine import CUT_OFF, DRIVE, DRIVES, JOURNAL, UNDER_WAY

TESTS = ("tests/unit/engine/test_patience.py", "-k", "not through_outages")
ADOPTION = ("tests/unit/engine/test_adoption.py",)
LEASES = "engine/runner/leases.py"
SERVER = ("tests/stores/postgres/test_patience.py",)

MUTANTS = [
    Mutant(
        "a commit is given up after a few tries",
        JOURNAL,
        "        if waiting.until is None:\n            return True\n",
        "        if waiting.until is None:\n            waiting.until = 0.0\n",
        TESTS,
    ),
    Mutant(
        "commits that met the same lock are written one by one",
        JOURNAL,
        "                parts = [left] if locked else [[waiting] for waiting in left]\n",
        "                parts = [[waiting] for waiting in left]\n",
        ("tests/unit/engine/test_group_commit.py",),
    ),
    Mutant(
        "a lease that is in doubt is lost",
        LEASES,
        "            self._call(lease.doubted)\n",
        "            self._call(lease.lost)\n",
        TESTS,
    ),
    Mutant(
        "a body goes on while its lease is in doubt",
        LEASES,
        "            self._call(lease.doubted)\n",
        "            self._call(lease.renewed)\n",
        TESTS,
    ),
    Mutant(
        "a claim that this process has got again ends its drive",
        DRIVES,
        "        if driver is None or not driver.adopt(run, claim):\n",
        "        if True or driver is None or not driver.adopt(run, claim):\n",
        TESTS,
    ),
    Mutant(
        "a run that is dropped keeps its claim",
        DRIVES,
        "            await self._store.release([driver.claim], timeout=self._timeout_s)\n",
        "            pass\n",
        TESTS,
    ),
    Mutant(
        "a run that is dropped counts as a death",
        DRIVES,
        "        await self._lease_losses.report_now(driver.claim, driver.in_flight.losses())\n",
        "",
        TESTS,
    ),
    Mutant(
        "a look for a child is given up",
        UNDER_WAY,
        "                self._timeout_s,\n                tries=None,\n",
        "                self._patience,\n                tries=4,\n",
        TESTS,
    ),
    Mutant(
        "a start takes the claim of another worker",
        "engine/runner/engine.py",
        "        elif committed.again and not await self._still_holds(claim, asked):\n",
        "        elif False:\n",
        ("tests/unit/engine/test_start_again.py",),
    ),
    Mutant(
        "whoever waits for a result is told of an outage",
        "client/results.py",
        "            if deadline is not None and clock.monotonic() + pause >= deadline:\n",
        "            if True:\n",
        TESTS,
    ),
    Mutant(
        "who acts on a locked run does not wait",
        "client/moved_runs.py",
        "            if left <= 0:\n                raise locked(",
        "            if True:\n                raise locked(",
        TESTS,
    ),
    Mutant(
        "a handle forgets how long its caller waits",
        "client/handle.py",
        "        item = Item(kind=ItemKind.CANCEL, name=reason)\n"
        "        await self._backend.send(self.id, item, timeout=to_seconds(timeout))\n",
        "        item = Item(kind=ItemKind.CANCEL, name=reason)\n"
        "        await self._backend.send(self.id, item)\n",
        TESTS,
    ),
    Mutant(
        "a synchronous handle forgets how long its caller waits",
        "sync/handle.py",
        "        self._call(self._async.terminate(reason, timeout=timeout))\n",
        "        self._call(self._async.terminate(reason))\n",
        TESTS,
    ),
    Mutant(
        "a task is taken while its report waits",
        "worker/task_worker.py",
        "        while any(self._leases.is_late(self._working[one]) for one in self._reporting):\n",
        "        while False:\n",
        TESTS,
    ),
    Mutant(
        "a run that rests is adopted by the drive that has left it",
        DRIVE,
        "        if is_written and self._last_releases:\n",
        "        if False:\n",
        ADOPTION,
    ),
    Mutant(
        "the transaction of a step keeps its run from a newer claim",
        DRIVE,
        "run.revision == max(self._revision, self.in_flight.revision) or is_written\n",
        "run.revision == self._revision or is_written\n",
        ADOPTION,
    ),
    Mutant(
        "a look for a child that fails is forgotten",
        UNDER_WAY,
        "            self._error = error\n        finally:\n",
        "            pass\n        finally:\n",
        TESTS,
    ),
    Mutant(
        "code runs on while a commit is on its way",
        UNDER_WAY,
        "            self._lost.append(executor)  # not delivered now: a commit may be in flight\n",
        "            mapping.deliver(self._execution, self._clock.now())\n"
        "            self._lost.append(mapping)\n",
        ("tests/unit/engine/test_doubts.py",),
    ),
    Mutant(
        "a drive ends because of a claim of its own process",
        DRIVES,
        "        if self._adoptions:\n",
        "        if False:\n",
        ADOPTION,
    ),
    Mutant(
        "a drive that makes room for a newer one reports nothing",
        DRIVES,
        "            present.lost_claim = True\n",
        "",
        ADOPTION,
    ),
    Mutant(
        "suspects wait for ever once they are forgiven",
        CUT_OFF,
        "        deaths = max(self._waiting[0].suspect.interruptions - SUSPECT_AFTER, 0)\n",
        "        deaths = self._waiting[0].suspect.interruptions - SUSPECT_AFTER\n",
        ("tests/unit/engine/test_lease_loss.py",),
    ),
    Mutant(
        "postgres: nothing waits for a lock in the database",
        "stores/postgres/functions/lock_runs.sql",
        "        EXIT WHEN ms_left < 1;\n",
        "        EXIT;\n",
        SERVER,
    ),
    Mutant(
        "postgres: a transactional step does not wait for its run",
        "engine/steps/transactions.py",
        "        [answer] = await store.commit_when_free([commit], patience=LOCK_PATIENCE_S)\n",
        "        [answer] = await store.commit_when_free([commit], patience=0.01)\n"
        "        if isinstance(answer, Busy):\n            raise TryAgain('locked')\n",
        ("tests/stores/postgres/test_transactional_steps.py", "-k", "waits_for_a_run"),
    ),
    Mutant(
        "postgres: a transactional step never gives way",
        "engine/steps/transactions.py",
        "            raise _Locked(answer)\n",
        "            continue\n",
        ("tests/stores/postgres/test_transactional_steps.py", "-k", "gives_way"),
    ),
    Mutant(
        "postgres: one session says that a worker lives",
        "stores/postgres/functions/lock_owners.sql",
        "               AND pg_try_advisory_lock_shared(@owner_lock_id(o)) THEN\n",
        "               AND false THEN\n",
        SERVER,
    ),
]
