"""The engine with a fault that random programs found, or with the mending of one taken out: the small
program that shows it has to notice."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant
from tests.mutants._engine import ARRIVALS, DRIVE, DRIVES, EXECUTION, JOURNAL, TURN

CLOSING = "engine/replay/completion.py"
RETRYING = "client/history_reset.py"


def program(name: str) -> tuple[str, ...]:
    """The test of one program of `tests.campaigns.programs.found`."""
    return (f"tests/campaigns/programs/test_programs.py::test_a_program_that_once_failed[{name}]",)


MUTANTS = [
    # -- stopping -------------------------------------------------------------------------------
    Mutant(
        "programs: a paused run that was stopped has nothing under way",
        DRIVE,
        "            paused = self._paused and not (leaves and self.in_flight.is_end_unknown)\n",
        "            paused = self._paused\n",
        program("a paused run that is stopped in a step that must not be repeated"),
    ),
    # -- people -----------------------------------------------------------------------------------
    Mutant(
        "programs: an answer reaches whatever is asked first",
        ARRIVALS,
        "        ask = self._open(item.name)\n",
        "        ask = next((o for o in execution.open.values() if isinstance(o, AskWait)), None)\n"
        "        answer = answer if ask is None else Answer(id=answer.id, ask=ask.token, value=answer.value)\n",
        program("questions side by side in two lives, the worker dies"),
    ),
    # -- retrying -------------------------------------------------------------------------------
    Mutant(
        "programs: a child that was itself retried keeps its parent from being retried",
        RETRYING,
        "        if spawned.parent_close or not await _is_cancelled(store, child.id):\n",
        "        if spawned.parent_close:\n",
        program("a retried run whose child was retried before and waits"),
    ),
    # -- starting -------------------------------------------------------------------------------
    Mutant(
        "programs: a step of a start that was not answered counts as interrupted",
        "engine/runner/engine.py",
        "            self._report_not_started(execution, claim)\n",
        "",
        program("a start that was not answered, and a store that is away"),
    ),
    # -- the next life ----------------------------------------------------------------------------
    Mutant(
        "programs: a report of an earlier life answers a step of the next",
        ARRIVALS,
        "isinstance(call, StepCall) or report.life != self._execution.life_of(call):\n",
        "isinstance(call, StepCall):\n",
        program("a report of a queued step that comes after its life"),
    ),
    Mutant(
        "lives: a takeover replays the history of a later owner",
        "engine/runner/claimer.py",
        "        if newest > claim.token:",
        "        if newest < 0:",
        ("tests/unit/engine/test_late_takeover.py",),
    ),
    # -- replay ---------------------------------------------------------------------------------
    Mutant(
        "programs: what was open at a snapshot is not begun again",
        EXECUTION,
        "                operation.is_inherited = True\n",
        "                operation.is_inherited = bool(event.id)\n",
        program("a step that was open at a snapshot"),
    ),
    Mutant(
        "programs: a map that was open at a snapshot is stuck after a stop",
        EXECUTION,
        "            if self.reads_history and not operation.is_inherited:\n",
        "            if self.reads_history and event.id and not operation.is_inherited:\n",
        program("a map that was open at a snapshot"),
    ),
    Mutant(
        "programs: a scope that was over at once parks the run",
        EXECUTION,
        "        if self._statements and not self.history.ends_what_is_skipped(event):\n",
        "        if self._statements:\n",
        program("a scope that is over at once, beside a step"),
    ),
    Mutant(
        "programs: a scope that has just failed is given up as well",
        EXECUTION,
        "        if any(key == operation.key for key, _ in self._statements):\n",
        "        if False:\n",
        program("a scope that fails before the undo, and a crash"),
    ),
    Mutant(
        "programs: the call that is retried counts as a death of its process",
        "engine/steps/crash_isolation.py",
        "            execution.deliver(forgiven, now, key=key)\n",
        "",
        program("a retry of a step under which two workers die"),
    ),
    Mutant(
        "programs: a scope whose code has raised is done again as a whole",
        "engine/replay/history_reset.py",
        "    return before_step(kept, failed) if position is None else kept[:position]\n",
        "    return before_step(kept, failed)\n",
        program("a retry of a scope whose code has raised"),
    ),
    # -- the saga -------------------------------------------------------------------------------
    Mutant(
        "programs: what runs is not awaited before the undo",
        CLOSING,
        "        if self._is_waiting():\n            return False\n",
        "        self._is_waiting()\n",
        program("a branch that goes on while another failed"),
    ),
    Mutant(
        "programs: other branches are not cancelled when one has failed",
        CLOSING,
        "            self.has_started = self.has_failed = self._execution.is_guarded = True\n"
        "            self._cancel_tasks()\n",
        "            self.has_started = self.has_failed = self._execution.is_guarded = True\n",
        program("a branch that begins a step during the undo"),
    ),
    Mutant(
        "programs: a map that is left is cut off, and its items are not undone",
        CLOSING,
        "        return operation.may_run and (self.has_started or operation.is_undoable)\n",
        "        return False\n",
        program("an item that is done when another branch fails"),
    ),
    Mutant(
        "programs: a queued step is handed out though its code has gone",
        "engine/operations/step.py",
        "            self.withdraw(execution)\n",
        "            execution.pending.drops.append(self._task_id(execution))\n",
        program("a cancel while a queued step is asked for"),
    ),
    Mutant(
        "programs: a queued step that was left by a run that failed begins",
        DRIVE,
        "            if execution.pending.tasks:\n",
        "            if not execution:\n",
        program("a queued step that is asked for while another branch fails"),
    ),
    # -- children and messages ------------------------------------------------------------------
    Mutant(
        "programs: children that run are deleted with a life of their parent",
        "stores/memory/commit.py",
        "    return below(commit.run_id)\n",
        "    return [] if below(commit.run_id) else []\n",
        program("a child that outlives a life"),
    ),
    Mutant(
        "programs: a life that continues as new leaves its children alone",
        TURN,
        "        sends=(*pending.sends, *child_cancellations(execution)),\n"
        "        events=(to_event(started, run_id=run.id, timestamp=execution.now),),\n",
        "        sends=tuple(pending.sends),\n"
        "        events=(to_event(started, run_id=run.id, timestamp=execution.now),),\n",
        program("a child that ends with a life"),
    ),
    Mutant(
        "programs: a retry begins children once more that run",
        RETRYING,
        "        elif await goes_on(spawned):\n",
        "        elif False:\n",
        program("a retry beside a child that runs"),
    ),
    Mutant(
        "programs: a retry loses signals that were not taken",
        RETRYING,
        "        carry_inbox=True,\n",
        "",
        program("a retry and a signal that was not taken"),
    ),
    Mutant(
        "programs: answers go along through one life",
        TURN,
        "        answers=answers_to_keep(before, history),\n",
        "        answers=answers_to_keep(msgspec.structs.replace(before, answers=[]), history),\n",
        program("an answer over three lives"),
    ),
    Mutant(
        "programs: a child is deleted under a parent that waits for it",
        "client/terminate.py",
        "            only_ended=True,\n",
        "            only_ended=False,\n",
        program("a child that is deleted"),
    ),
    # -- transactions and clocks ----------------------------------------------------------------
    Mutant(
        "programs: a committed transaction counts as interrupted",
        DRIVE,
        "            self._inbox.takes_over = True\n            await self._read_inbox()\n",
        "",
        program("a transaction whose worker dies after its COMMIT"),
    ),
    Mutant(
        "programs: time goes back with the clock of the machine",
        "ports/clock.py",
        "        if wall < steady and steady - wall <= self.MAX_AHEAD:\n",
        "        if wall < steady and steady - wall <= timedelta(0):\n",
        program("a clock that is set back in a sleep, and a crash"),
    ),
    # -- patience -------------------------------------------------------------------------------
    Mutant(
        "programs: a run is dropped when its row is busy for a while",
        JOURNAL,
        "        if waiting.until is None:\n            return True\n        if isinstance(why, Busy):\n",
        "        if waiting.until is None and not isinstance(why, Busy):\n            return True\n"
        "        if waiting.until is not None and isinstance(why, Busy):\n",
        program("a row that is busy for longer than the lease"),
    ),
    Mutant(
        "programs: a run is dropped when the store is away for a moment",
        JOURNAL,
        "        if waiting.until is None:\n            return True\n        if isinstance(why, Busy):\n",
        "        if isinstance(why, Busy):\n            if waiting.until is None:\n                return True\n",
        program("three short outages"),
    ),
    # -- stopping -------------------------------------------------------------------------------
    Mutant(
        "programs: a stop cuts off what runs",
        DRIVES,
        "            await limit.wait_for(self.settled())\n",
        "            await asyncio.sleep(0)\n",
        program("a graceful stop and a step that may begin once"),
    ),
]
