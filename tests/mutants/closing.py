"""The end of a run's code and of its process, broken: closing, unknown outcomes, draining."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant
from tests.mutants._engine import DRIVE, MAPPING, STEP, UNDER_WAY, UNDO, cases

CLOSING = "engine/replay/completion.py"
CODE = "tests/unit/engine/test_closing.py"
STOP = "tests/unit/engine/test_draining.py"

MUTANTS = [
    Mutant(
        "a run whose start is acknowledged while its process stops is driven there",
        "engine/runner/driver_pool.py",
        "        if self.is_stopping:\n            driver.stop()\n",
        "",
        (STOP, "-k", "being_started"),
    ),
    Mutant(
        "a process closes without the runs that are being started in it",
        "engine/runner/driver_pool.py",
        "        if self.starts:\n            await asyncio.wait(self.starts, timeout=self._timeout_s)\n",
        "",
        (STOP, "-k", "being_started"),
    ),
    Mutant(
        "a step that waits for a thread when its process stops counts as begun",
        "engine/steps/step_executor.py",
        "                if future.cancel() and (waiting := step_context.get(None)) is not None:",
        "                if False and (waiting := step_context.get(None)) is not None:",
        (STOP, "-k", "waits_for_a_thread"),
    ),
    Mutant(
        "a step that a thread has taken when its process stops counts as not begun",
        "engine/steps/step_executor.py",
        "                if future.cancel() and (waiting := step_context.get(None)) is not None:",
        "                if (waiting := step_context.get(None)) is not None:",
        (STOP, "-k", "has_taken"),
    ),
    Mutant(
        "a queued step that waits for a thread when its worker stops counts as begun",
        "worker/task_worker.py",
        "            if self._stopping and (latest.was_never_called or not step.at_most_once):",
        "            if self._stopping and not step.at_most_once:",
        (STOP, "-k", "waits_for_a_thread"),
    ),
    Mutant(
        "what is sent to a run while its process stops is left in its inbox",
        "engine/runner/run_driver.py",
        "            hands_on = leaves or (rests and self._is_stopping and self._inbox.has_undelivered)",
        "            hands_on = leaves",
        ("tests/unit/engine/test_draining.py", "-k", "during_the_drain"),
    ),
    Mutant(
        "a queued step that may run once is taken back",
        "engine/operations/step.py",
        "        return (self.is_undoable or self.step.at_most_once) and super().may_run",
        "        return self.is_undoable and super().may_run",
        (CODE, "-k", "may_run_once"),
    ),
    Mutant(
        "what is no Exception is not undone",
        CLOSING,
        "    return main.cancelled() or not isinstance(main.exception(), ContinueAsNew | None)",
        "    return main.cancelled() or isinstance(\n"
        "        main.exception(), Exception | asyncio.CancelledError\n    )",
        (CODE, "-k", "whatever_a_run_fails_with"),
    ),
    Mutant(
        "branches go on while a run is undone",
        CLOSING,
        "            self._cancel_tasks()\n            self._execution.drain()\n",
        "            self._execution.drain()\n",
        cases("undoes_what_others_finish_later", "scopes_and_loops_are_left"),
    ),
    Mutant(
        "undoing does not wait for what runs",
        CLOSING,
        "        if any(operation.is_awaited for operation in open):\n            return True\n",
        "",
        cases("undoes_what_others_finish_later"),
    ),
    Mutant(
        "what can be undone is cut off",
        CLOSING,
        "(self.has_started or operation.is_undoable)",
        "self.begun",
        cases("a_group_fails", "gives_a_step_up_that_it_can_undo"),
    ),
    Mutant(
        "a cancelled run cuts off what runs",
        CLOSING,
        "        self.has_started = True\n        if main.done():",
        "        if main.done():",
        cases("is_cancelled_at_work"),
    ),
    Mutant(
        "a finally has no time",
        CLOSING,
        "            and any(operation.ends_by_itself and not operation.is_abandoned for operation in open)\n",
        "            and False\n",
        (CODE,),
    ),
    Mutant(
        "code that will not end holds up its undoing",
        "engine/operations/waits.py",
        "    wait_kind = WaitKind.SIGNAL\n",
        "    wait_kind = WaitKind.SIGNAL\n    ends_by_itself = True\n",
        cases("a_branch_will_not_end"),
    ),
    Mutant(
        "code may ask for anything while it is undone",
        CLOSING,
        "        if self.over or self._calls > MAX_CALLS:\n",
        "        if self._calls > MAX_CALLS:\n",
        cases("a_branch_will_not_end"),
    ),
    Mutant(
        "code that catches its cancellation goes on for ever",
        CLOSING,
        "        if self.over or self._calls > MAX_CALLS:\n",
        "        if self.over:\n",
        (CODE,),
    ),
    Mutant(
        "a handler that will not end is not answered for",
        CLOSING,
        "        execution.updates.cancel_open()\n",
        "",
        (CODE,),
    ),
    Mutant(
        "a step that was left is tried again",
        STEP,
        "        if not self.is_awaited or failed.stopped or not failed.will_retry:\n",
        "        if True:\n",
        (CODE,),
    ),
    Mutant(
        "a step begins though its run has failed before",
        UNDER_WAY,
        "                operation.is_awaited\n                and isinstance(operation, StepCall)",
        "                False\n                and isinstance(operation, StepCall)",
        (CODE,),
    ),
    Mutant(
        "a map that was left begins new items",
        MAPPING,
        "            self._todo = deque(index for index in self._todo if index in self._inherited)\n",
        "",
        (CODE,),
    ),
    Mutant(
        "a map that fails cuts off the items beside it",
        MAPPING,
        "        if end is not None and call.is_undoable:\n",
        "        if False:\n",
        cases("undoes_the_items_beside_the_one_that_failed"),
    ),
    Mutant(
        "an unknown outcome is taken for nothing done",
        STEP,
        "                if self._is_unknown:\n                    self._register_unknown()\n",
        "",
        cases("undoes_what_may_have_been_done"),
    ),
    Mutant(
        "an unknown outcome is undone like a known one",
        UNDO,
        "            undo = step.unknown_compensation\n",
        "            undo = step.unknown_compensation or step.compensation\n",
        cases("undoes_what_may_have_been_done"),
    ),
    Mutant(
        "what is finished later in a scope is not undone",
        UNDO,
        "            operation.is_undoable and operation.key.startswith(below)\n",
        "            False\n",
        (CODE,),
    ),
    Mutant(
        "interruptions are judged before the inbox is read",
        DRIVE,
        "            self._inbox.takes_over = True\n            await self._read_inbox()\n",
        "",
        ("tests/stores/postgres/test_transactional_steps.py",),
    ),
    Mutant(
        "a stop cuts off what runs",
        DRIVE,
        "                        self._stops_now or not self.in_flight.is_running\n",
        "                        True\n",
        (STOP,),
    ),
    Mutant(
        "a step begins while its process stops",
        DRIVE,
        "launch(paused=self._paused or self._is_stopping)",
        "launch(paused=self._paused)",
        (STOP,),
    ),
    Mutant(
        "a step that has not begun is taken for one that was cut off",
        UNDER_WAY,
        "        return not waits and call not in self._execution.launches\n",
        "        return not waits\n",
        (STOP,),
    ),
    Mutant(
        "leases are not kept alive while a process stops",
        "engine/runner/engine.py",
        "        await self.claimer.close()\n        await self.drivers.drain(limit)\n",
        "        await self.claimer.close()\n        await self.leases.close()\n"
        "        await self.drivers.drain(limit)\n",
        (STOP,),
    ),
]
