"""What outlast does in a Django project, broken."""

from __future__ import annotations

from outlast.testing.mutation import Mutant

THREADS = "contrib/django/threads.py"
TESTS = "tests/django/test_threads.py"
RUN_ALL = "tests/django/test_testing.py"

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
        "a test begins where the time of another has ended",
        "contrib/django/testing.py",
        '        self.addCleanup(setattr, _last, "moment", _last.moment)  # type: ignore[attr-defined]\n',
        "",
        (RUN_ALL, "-k", "next_test_begins"),
    ),
]
