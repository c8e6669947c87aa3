"""The engine, broken."""

from __future__ import annotations

from outlast.testing.mutation import Mutant

DRIVE = "engine/drive.py"
TURN = "engine/turn.py"
ENGINE = "engine/engine.py"
EXECUTION = "engine/execution.py"
LOOP = "engine/loop.py"
PAST = "engine/past.py"
ARRIVALS = "engine/arrivals.py"
MAPPING = "engine/mapping.py"
SIGNAL = "engine/operations/signal.py"
STEP = "engine/operations/step.py"
MAP = "engine/operations/map.py"
CHILD = "engine/operations/child.py"
REGION = "engine/operations/region.py"
UNDO = "engine/operations/compensation.py"

CALM = "tests/corpus/test_corpus.py"
CRASH = "tests/corpus/test_crashes.py::test_a_crash_changes_nothing"
SLEPT = "tests/corpus/test_crashes.py::test_a_process_that_slept_past_its_lease_changes_nothing"
REPLAY = "tests/engine/test_replay.py"
CONTROL = "tests/engine/test_control.py"
WAKING = "tests/engine/test_waking.py"


def cases(*ids: str) -> tuple[str, ...]:
    """These cases of the corpus, in memory, undisturbed."""
    return tuple(f"{CALM}::test_a_case[memory-{id}]" for id in ids)


def crashed(*ids: str) -> tuple[str, ...]:
    """These cases, with a process that dies."""
    return tuple(f"{CRASH}[{id}]" for id in ids)


MUTANTS = [
    # -- nothing leaves before it is durable ----------------------------------------------------
    Mutant(
        "a body begins before its intent is durable",
        DRIVE,
        "                while await self._turn():\n                    self._begin_bodies()",
        "                while self._begin_bodies() is None and await self._turn():  # type: ignore\n"
        "                    pass",
        cases("one_after_the_other", "gathers"),
    ),
    Mutant(
        "a map begins more than was announced",
        MAPPING,
        "        self._todo = deque(call.open_items)\n",
        "        self._todo = deque(range(len(call.items)))\n",
        ("tests/engine/test_maps.py",),
    ),
    # -- one writer -----------------------------------------------------------------------------
    Mutant(
        "a completion is not fenced",
        TURN,
        "        token=claim.token or None,\n        expected=sequence,\n        events=",
        "        token=claim.token or None,\n        force=claim.token > 0,\n        events=",
        (f"{SLEPT}[one_after_the_other]", f"{SLEPT}[naps]"),
    ),
    Mutant(
        "the expected sequence is dropped",
        TURN,
        "        expected=sequence,\n        events=",
        "        events=",
        cases("one_after_the_other"),
    ),
    # -- waking ---------------------------------------------------------------------------------
    Mutant(
        "a wake-up is dropped",
        DRIVE,
        "            if not committed.still_runnable and not committed.again:\n",
        "            if rests:\n",
        (WAKING,),
    ),
    Mutant(
        "a run that rests says it has seen everything",
        TURN,
        "        seen=seen,\n        release=rests,",
        "        seen=2**62,\n        release=rests,",
        (WAKING,),
    ),
    Mutant(
        "a run that rests keeps its claim",
        TURN,
        "        seen=seen,\n        release=rests,",
        "        seen=seen,\n        release=False,",
        (WAKING,),
    ),
    Mutant(
        "a timer fires early",
        DRIVE,
        "if op.due is not None and op.due <= now]",
        "if op.due is not None and op.due <= now + LINGER * 1800]",
        cases("naps", "timers_in_timers", "a_signal_before_its_timeout"),
    ),
    Mutant(
        "a run that rests forgets when to wake",
        TURN,
        "        runnable_at=UNSET if not rests else None if paused else next_wake(execution),",
        "        runnable_at=UNSET if not rests else None,",
        cases("naps"),
    ),
    Mutant(
        "a wait between attempts is not durable",
        STEP,
        "            retry_at=None if wait is None else now + wait,",
        "            retry_at=None,",
        (WAKING,),
    ),
    # -- the inbox ------------------------------------------------------------------------------
    Mutant(
        "a signal is received and stays in the inbox",
        SIGNAL,
        "            execution.draft.folds.append(item.number)\n",
        "",
        cases("hears_in_order"),
    ),
    Mutant(
        "a signal leaves the inbox before it is received",
        ARRIVALS,
        "            self._mailbox.put(item)\n            return\n",
        "            self._mailbox.put(item)\n"
        "            execution.draft.folds.append(item.number)\n            return\n",
        crashed("hears_it_too_early", "begins_anew", "asks_twice"),
    ),
    Mutant(
        "the last signal is taken first",
        SIGNAL,
        "self._items[operation.signal].popleft()",
        "self._items[operation.signal].pop()",
        cases("hears_in_order", "many_wait_for_one_name"),
    ),
    Mutant(
        "a cancel is lost",
        ARRIVALS,
        "                if execution.main is not None and not execution.main.done():",
        "                if execution.main is None:",
        cases("a_cancel_acts"),
    ),
    Mutant(
        "a request to pause is forgotten by a crash",
        ARRIVALS,
        "            self._pauses.append(item.number)\n",
        "            execution.draft.folds.append(item.number)\n",
        crashed("is_paused"),
    ),
    Mutant(
        "a new life loses its signals",
        TURN,
        "        carry_inbox=True,",
        "        carry_inbox=False,",
        cases("begins_anew"),
    ),
    # -- replay ---------------------------------------------------------------------------------
    Mutant(
        "a mismatch is ignored",
        EXECUTION,
        "            # All that the code said before this delivery was recorded before it, or never.\n"
        "            raise self._mismatch(event)",
        "            self._said.clear()",
        (REPLAY,),
    ),
    Mutant(
        "a replay delivers in another order",
        EXECUTION,
        "        self.past = Past(events)\n        for event in events:\n",
        "        self.past = Past(events)\n"
        "        for event in sorted(events, key=lambda e: (e.type.endswith('completed'), e.step_name)):\n",
        cases("appends_to_one_list", "takes_them_as_they_come"),
    ),
    Mutant(
        "a key does not say in which branch",
        "engine/scope.py",
        '        return f"{self.path}{name}" if count == 1 else f"{self.path}{name}#{count}"',
        '        return name if count == 1 else f"{name}#{count}"',
        cases("gathers"),
    ),
    Mutant(
        "luck is not the same again",
        "api.py",
        """    return _random.Random(f"{run.seed}/{run.scope.key('random')}")""",
        """    return _random.Random(f"{run.scope.key('random')}{id(run)}")""",
        cases("luck_is_the_same_again"),
    ),
    Mutant(
        "time is that of the machine",
        "api.py",
        '    return _execution("now").now\n',
        '    _execution("now")\n    return datetime.now().astimezone()\n',
        cases("time_is_the_same_again", "naps"),
    ),
    Mutant(
        "a step gets what the workflow holds",
        STEP,
        "        self.input, self.args, self.kwargs = step.signature.encode_call(\n"
        "            execution.codec, args, kwargs\n        )\n",
        "        self.input, _, _ = step.signature.encode_call(execution.codec, args, kwargs)\n"
        "        self.args, self.kwargs = args, kwargs\n",
        cases("does_not_share_values"),
    ),
    Mutant(
        "a closed scope is run again",
        REGION,
        "    if region.key in execution.past.closed_scopes:\n",
        "    if False:\n",
        cases("closes_a_scope"),
    ),
    Mutant(
        "a loop begins at its beginning",
        REGION,
        "    iteration = execution.past.iterations.get(key, 0)\n",
        "    iteration = 0\n",
        cases("loops"),
    ),
    Mutant(
        "a cancel reaches those who wait for a finished scope",
        REGION,
        "        return await _recorded(region.future)\n",
        "        return await region.future\n",
        cases("a_scope_carries_on"),
    ),
    # -- eviction -------------------------------------------------------------------------------
    Mutant(
        "code that waits once more is left half open",
        LOOP,
        "        except RuntimeError:\n            continue  # it has waited once more;",
        "        except RuntimeError:\n            return  # it has waited once more;",
        (*cases("a_group_cleans_up"), REPLAY),
    ),
    Mutant(
        "a generator is closed by the program's own loop",
        LOOP,
        "        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._close_generator)\n",
        "",
        cases("a_generator_cleans_up"),
    ),
    Mutant(
        "eviction is cancellation",
        LOOP,
        "                context.run(coroutine.close)\n",
        "                context.run(coroutine.throw, asyncio.CancelledError())\n",
        (*cases("carries_on", "an_eviction_does_not_act"), REPLAY),
    ),
    Mutant(
        "a plain workflow acts when it is thrown out",
        "engine/bridge.py",
        "        if self.execution.evicted:\n            request.close()\n"
        "            raise self.execution.eviction()\n",
        "        if self.execution.evicted:\n            request.close()\n            return None\n",
        cases("an_eviction_does_not_act_sync"),
    ),
    # -- steps ----------------------------------------------------------------------------------
    Mutant(
        "attempts are not counted",
        STEP,
        "        return StepStarted(attempt=self.attempt + 1)",
        "        return StepStarted(attempt=self.attempt)",
        (f"{REPLAY}::test_a_step_that_kills_its_process_ends_in_failure",),
    ),
    Mutant(
        "a delicate step is repeated",
        STEP,
        "        if not self.step.at_most_once and interruptions < MAX_INTERRUPTIONS:",
        "        if interruptions < MAX_INTERRUPTIONS:",
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
        '        return f"{self.uid}/{self.key}"',
        '        return f"{self.uid}/{self.key}/{self.attempt}"',
        cases("keeps_its_key"),
    ),
    Mutant(
        "a report from a thread is taken in that thread",
        DRIVE,
        "            loop.call_soon_threadsafe(self._report, key, attempt, details)",
        "            loop.call_soon_threadsafe(self._report, key, 1, details)",
        ("tests/engine/test_steps.py",),
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
        ENGINE,
        "            elif run.status is Status.PAUSED:\n",
        "            elif run.status is Status.FAILED:\n",
        cases("is_paused_before_a_delicate_step"),
    ),
]
