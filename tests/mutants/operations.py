"""The engine, broken: eviction, steps, children, maps, compensation, and what is told."""

from __future__ import annotations

from outlast.testing.mutation import Mutant
from tests.mutants._engine import (
    CHILD,
    CONTROL,
    CUT_OFF,
    DRIVE,
    DRIVES,
    EXECUTION,
    LOOP,
    MAP,
    PAST,
    REPLAY,
    RETRY,
    STEP,
    TURN,
    UNDER_WAY,
    UNDO,
    cases,
    crashed,
)

MUTANTS = [
    # -- eviction -------------------------------------------------------------------------------
    Mutant(
        "code that waits once more is left half open",
        LOOP,
        "    for _ in range(MAX_CLOSINGS):\n        inner = ",
        "    for _ in range(1):\n        inner = ",
        (*cases("a_group_cleans_up"), REPLAY),
    ),
    Mutant(
        "a generator is closed by the program's own loop",
        LOOP,
        "            sys.set_asyncgen_hooks(firstiter=None, finalizer=self._loop.close_generator)\n",
        "",
        cases("a_generator_cleans_up"),
    ),
    Mutant(
        "eviction is cancellation",
        LOOP,
        "            context.run(inner.close)\n",
        "            context.run(inner.throw, asyncio.CancelledError())\n",
        (*cases("carries_on", "an_eviction_does_not_act"), REPLAY),
    ),
    Mutant(
        "code is thrown out from the outside in",
        LOOP,
        "        found = awaited\n",
        "        found = found or awaited\n",
        ("tests/engine/test_leaving.py",),
    ),
    Mutant(
        "a plain workflow acts when it is thrown out",
        "engine/bridge.py",
        "        if self.execution.evicted:\n            request.close()\n"
        "            raise self.execution.eviction()\n",
        "        if self.execution.evicted:\n            request.close()\n            return None\n",
        cases("an_eviction_does_not_act_sync"),
    ),
    Mutant(
        "code whose driver never began is left to the garbage collector",
        DRIVES,
        "        task.add_done_callback(lambda _: execution.evict())\n",
        "",
        ("tests/engine/test_leaving.py",),
    ),
    # -- steps ----------------------------------------------------------------------------------
    Mutant(
        "the attempts of a step are not counted",
        STEP,
        "        return StepStarted(attempt=self.attempt + 1)",
        "        return StepStarted(attempt=self.attempt)",
        (f"{REPLAY}::test_a_step_that_kills_its_process_ends_in_failure",),
    ),
    Mutant(
        "a delicate step is repeated",
        STEP,
        "        if not self.step.at_most_once and self.interruptions < MAX_INTERRUPTIONS:",
        "        if self.interruptions < MAX_INTERRUPTIONS:",
        ("tests/corpus/test_crashes.py::test_a_delicate_step_is_not_repeated",),
    ),
    Mutant(
        "what was reported is forgotten",
        STEP,
        "                self.progress = details",
        "                self.progress = None",
        cases("goes_on_where_it_was"),
    ),
    Mutant(
        "each attempt has a key of its own",
        "engine/bodies.py",
        '        return f"{self.life or self.uid}/{self.key}"',
        '        return f"{self.life or self.uid}/{self.key}/{self.attempt}"',
        cases("keeps_its_key"),
    ),
    Mutant(
        "a report from a thread is taken in that thread",
        UNDER_WAY,
        "            self._loop.call_soon_threadsafe(self._report, key, attempt, details)",
        "            loop.call_soon_threadsafe(self._report, key, 1, details)",
        ("tests/engine/test_steps.py",),
    ),
    Mutant(
        "a step may kill its process for ever",
        STEP,
        "        if not self.step.at_most_once and self.interruptions < MAX_INTERRUPTIONS:",
        "        if not self.step.at_most_once:",
        (f"{REPLAY}::test_a_step_that_kills_its_process_ends_in_failure",),
    ),
    Mutant(
        "what is not worth a retry is tried again",
        RETRY,
        "_is(error, (*self.give_up_on, PayloadError)):",
        "isinstance(error, PayloadError):",
        cases("gives_up_at_once"),
    ),
    Mutant(
        "retries do not wait longer each time",
        RETRY,
        "self.backoff ** (failures - 1)",
        "self.backoff ** 0",
        ("tests/engine/test_steps.py",),
    ),
    Mutant(
        "a step that nobody waits for goes on",
        UNDER_WAY,
        "                body.cancel()\n",
        "                pass\n",
        ("tests/engine/test_leaving.py",),
    ),
    # -- children, maps -------------------------------------------------------------------------
    Mutant(
        "a child does not tell how it ended",
        TURN,
        "    if run.parent is not None:\n        sends.append(child_outcome(run, end))",
        "    if run.parent is None:\n        sends.append(child_outcome(run, end))",
        cases("has_a_child"),
    ),
    Mutant(
        "the outcome of a child is sent outside the commit",
        DRIVE,
        "            committed = await self._journal.commit(commit)\n",
        "            bare = msgspec.structs.replace(commit, sends=())\n"
        "            committed = await self._journal.commit(bare)\n"
        "            if commit.sends:\n"
        "                await self._store.send(commit.sends)\n",
        crashed("has_a_child"),
    ),
    Mutant(
        "the end of a parent leaves its children alone",
        TURN,
        "child.parent_close is ParentClose.CANCEL\n",
        "child.parent_close is ParentClose.ABANDON\n",
        cases("ends_before_its_child"),
    ),
    Mutant(
        "every child is cancelled with its parent",
        CHILD,
        "isinstance(said, OperationAbandoned) and self.parent_close is ParentClose.CANCEL:",
        "isinstance(said, OperationAbandoned):",
        cases("leaves_its_child_alone"),
    ),
    Mutant(
        "the results of a map are in the order in which they came",
        MAP,
        "        for index in range(len(self.items)):\n            if index in self.results:\n",
        "        for index in self.results:\n            if index in self.results:\n",
        cases("maps"),
    ),
    Mutant(
        "an item of a map that is done is done again",
        MAP,
        "            if index not in self.results and index not in self.failed",
        "            if index not in self.failed",
        crashed("maps"),
    ),
    Mutant(
        "a map tolerates one failure too many",
        MAP,
        "            len(self.failed) > self._tolerate\n            or",
        "            len(self.failed) > self._tolerate + 1\n            or",
        cases("a_map_fails"),
    ),
    # -- compensation ---------------------------------------------------------------------------
    Mutant(
        "what was done first is undone first",
        UNDO,
        "        steps = list(reversed(self._registered))",
        "        steps = list(self._registered)",
        cases("undoes"),
    ),
    Mutant(
        "one undo that fails ends the undoing",
        UNDO,
        '                execution.say(f"undo/{key}", failure_of)\n',
        '                execution.say(f"undo/{key}", failure_of)\n                break\n',
        cases("one_undo_fails"),
    ),
    Mutant(
        "a cancel cuts the undoing short",
        EXECUTION,
        "            if self._main is not None and not self.undoing.begun:",
        "            if self._main is not None:",
        cases("is_cancelled_while_it_undoes"),
    ),
    Mutant(
        "a finished scope has nothing to undo",
        PAST,
        "                if not payload.undoable:\n",
        "                if True:\n",
        cases("undoes_what_a_scope_did"),
    ),
    Mutant(
        "a cancelled run is not undone",
        UNDO,
        "        if error is None or not isinstance(error, Exception | asyncio.CancelledError):",
        "        if error is None or not isinstance(error, Exception):",
        cases("undoes_on_cancel"),
    ),
    # -- telling --------------------------------------------------------------------------------
    Mutant(
        "what is published is not written",
        TURN,
        "    ctx = {**run.ctx, **draft.published} if draft.published else UNSET",
        "    ctx = UNSET",
        cases("tells_how_far_it_is"),
    ),
    Mutant(
        "a retry does again what was done",
        "engine/replanting.py",
        "    kept = before_step(history, None)\n    if failed is None:\n        return kept\n",
        "    kept = before_step(history, failed)\n    if failed is not None:\n        return kept\n",
        (f"{CONTROL}::test_a_retry_keeps_what_other_branches_have_done", CONTROL),
    ),
    Mutant(
        "a retry takes what was undone for done",
        "engine/replanting.py",
        "    undone = _undone(history)\n    if undone:",
        "    undone = _undone(history)\n    if not history:",
        (CONTROL,),
    ),
    Mutant(
        "a pause is taken for a death",
        CUT_OFF,
        "        elif run.status is Status.PAUSED:\n",
        "        elif run.status is Status.FAILED:\n",
        cases("is_paused_before_a_delicate_step"),
    ),
]
