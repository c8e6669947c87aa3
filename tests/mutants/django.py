"""What outlast does in a Django project, broken."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

THREADS = "contrib/django/threads.py"
TESTS = "tests/unit/contrib/django/test_threads.py"
RUN_ALL = "tests/unit/contrib/django/test_testing.py"

MUTANTS = [
    Mutant(
        "a transactional step leaves its connections to other databases open",
        THREADS,
        "                held.threads.submit(connections.close_all)\n",
        "                pass\n",
        (TESTS, "-k", "sqlite and closing_leaves_no"),
    ),
    Mutant(
        "a thread of steps ends with its connections open",
        THREADS,
        "        finally:\n            connections.close_all()\n",
        "        finally:\n            pass\n",
        (TESTS, "-k", "thread_of_steps"),
    ),
    Mutant(
        "run_all opens a connection that belongs to no thread",
        "contrib/django/testing.py",
        "held.begin(self._connect)",
        "held.begin(connections[self.alias].ensure_connection)",
        (RUN_ALL, "-k", "worked_off"),
    ),
    Mutant(
        "time goes back for the runs of a test",
        "contrib/django/testing.py",
        "        clock = VirtualClock(max(present, last_change or present))\n",
        "        clock = VirtualClock(present)\n",
        (RUN_ALL, "-k", "begins_at_the_present"),
    ),
    Mutant(
        "run_all returns although its worker cannot claim",
        "contrib/django/testing.py",
        "        if app.claim_error is not None:\n",
        "        if app.claim_error is app:\n",
        (RUN_ALL, "-k", "cannot_claim"),
    ),
    Mutant(
        "a claim that failed and succeeds is an error for good",
        "engine/runner/poll_loop.py",
        "                self.error = None\n",
        "",
        ("tests/unit/test_app.py", "-k", "claim_error"),
    ),
]
