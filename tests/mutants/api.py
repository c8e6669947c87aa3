"""The API that users import, broken: which module a name says, what an import loads, unused calls."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

NAMES = "tests/project/test_public_names.py"
WITH_SIGNAL = "tests/unit/engine/test_start_with_signal.py"

CALLS = "tests/unit/engine/test_calls.py"
SYNC = "tests/unit/test_sync.py"
PARITY = "tests/project/test_sync_api.py"

MUTANTS = [
    Mutant(
        "a call that workflow code drops is a warning",
        "call.py",
        "        return frame.f_lasti == at and ",
        "        return False and frame.f_lasti == at and ",
        (CALLS, "-k", "drops_fails"),
    ),
    Mutant(
        "a dropped call is lost when the code ends",
        "engine/replay/execution.py",
        "            self._raise_misuse()\n            return signature",
        "            return signature",
        (CALLS, "-k", "drops_fails"),
    ),
    Mutant(
        "a step runs after a dropped call",
        "engine/replay/execution.py",
        "        self._raise_misuse()\n        self.closing",
        "        self.closing",
        (CALLS, "-k", "drops_fails"),
    ),
    Mutant(
        "a call that is replaced by the next one counts as dropped",
        "call.py",
        'DROPPING = ("POP_TOP", ',
        'DROPPING = ("STORE_FAST", "POP_TOP", ',
        (CALLS, "-k", "was_kept"),
    ),
    Mutant(
        "each thread that opens a sync app starts a loop",
        "sync/blocking.py",
        "        with self._lock:\n            if self._is_open:\n                return\n",
        "        with self._lock:\n",
        (SYNC, "-k", "open_it_once or closing_twice"),
    ),
    Mutant(
        "a sync app that cannot open keeps its thread",
        "sync/blocking.py",
        "            except BaseException:\n                self._stop()\n                raise\n",
        "            except BaseException:\n                raise\n",
        (SYNC, "-k", "cannot_open"),
    ),
    Mutant(
        "a generator is read by the thread of the loop",
        "sync/blocking.py",
        "    return list(items) if isinstance(items, Iterator) else items\n",
        "    return items\n",
        (SYNC, "-k", "generator_is_read"),
    ),
    Mutant(
        "properties of a sync client are read in the loop that runs",
        "sync/blocking.py",
        "        return self._call(called())\n",
        "        called().close()\n        return function()\n",
        (SYNC, "-k", "inside_a_running_loop"),
    ),
    Mutant(
        "a sync handle lacks a method",
        "sync/handle.py",
        "    def entries(self)",
        "    def _entries(self)",
        (PARITY, "-k", "has_a_twin"),
    ),
    Mutant(
        "exported names say the file that defines them",
        "_public.py",
        "    thing.__module__ = PACKAGE\n",
        "",
        (NAMES, "-k", "exported_name_says"),
    ),
    Mutant(
        "the import of outlast loads the app",
        "__init__.py",
        "from outlast import errors\n",
        "from outlast import errors\nfrom outlast.app import App as _\n",
        (NAMES, "-k", "errors_alone"),
    ),
    Mutant(
        "the first signal is sent after the start",
        "engine/replay/commit_builder.py",
        "        return () if self.signal is None else (Send",
        "        return () if self.signal is None or self.creation is Creation.NEW else (Send",
        (WITH_SIGNAL, "-k", "one_commit"),
    ),
    Mutant(
        "a run that is there does not get the signal of a start",
        "client/client.py",
        "            if item is not None:\n                await backend.send(run_id, item)\n",
        "",
        (WITH_SIGNAL, "-k", "there_gets"),
    ),
]
