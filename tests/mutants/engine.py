"""The engine, broken: durability, waking, the inbox, replay."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant
from tests.mutants._engine import (
    ARRIVALS,
    CLAIMING,
    CLIENT,
    CONTROL,
    DIGEST,
    DRIVE,
    DRIVES,
    EXECUTION,
    HISTORY_LOADER,
    JOURNAL,
    MAILBOX,
    MAPPING,
    REGION,
    REPLAY,
    SLEPT,
    STEP,
    TELLING,
    TURN,
    WAKING,
    cases,
    crashed,
)

MUTANTS = [
    Mutant(
        "the renewal of leases goes on after a swallowed cancellation",
        "engine/runner/leases.py",
        "        raise_if_cancelled()  # a driver may swallow a cancellation, and `close` waits for this task\n",
        "",
        ("tests/unit/engine/test_leases.py", "-k", "swallows"),
    ),
    # -- nothing leaves before it is durable ----------------------------------------------------
    Mutant(
        "a body begins before its intent is durable",
        DRIVE,
        "                while await self._turn():\n",
        "                while self.in_flight.begin(paused=self._paused) is None and await self._turn():\n",
        cases("one_after_the_other", "gathers"),
    ),
    Mutant(
        "a map begins more than was announced",
        MAPPING,
        "        self._todo = deque(call.open_items)\n",
        "        self._todo = deque(range(len(call.items)))\n",
        ("tests/unit/engine/test_maps.py",),
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
    Mutant(
        "runs without code are taken over",
        CLAIMING,
        "                    workflows=self._workflows,\n                    run_ids=",
        "                    workflows=None,\n                    run_ids=",
        (f"{CONTROL}::test_a_worker_without_the_code_leaves_a_run_alone",),
    ),
    Mutant(
        "a large commit has no more time than a small one",
        JOURNAL,
        "        return self._timeout + ROW_SECONDS * rows\n",
        "        return self._timeout\n",
        ("tests/unit/engine/test_group_commit.py", "-k", "more_time"),
    ),
    Mutant(
        "a lost answer is taken for a refusal",
        JOURNAL,
        "            if len(batch) == 1 and not isinstance(error, AGAIN):\n",
        "            if len(batch) == 1:\n",
        ("tests/unit/engine/test_group_commit.py",),
    ),
    Mutant(
        "one that fails takes its batch along",
        JOURNAL,
        "            if len(batch) == 1 and not isinstance(error, AGAIN):\n"
        "                batch[0].fail(error)\n",
        "            if not isinstance(error, AGAIN):\n"
        "                [one.fail(error) for one in batch]\n",
        ("tests/unit/engine/test_group_commit.py",),
    ),
    Mutant(
        "two batches on their way touch the same run",
        JOURNAL,
        "            if self._flying and not self._flying.isdisjoint(_touched_by(commit)):\n",
        "            if False:\n",
        ("tests/unit/engine/test_group_commit.py",),
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
        "for when, op in waits if when <= now]",
        "for when, op in waits if when <= now + LINGER * 1800]",
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
        "        retry_at=None if wait is None else now + wait,",
        "        retry_at=None,",
        (WAKING,),
    ),
    Mutant(
        "a timer of a workflow fires twice",
        DRIVE,
        "                        self._execution.deliver(TimerFired(), now, key=operation.key)\n",
        "                        self._execution.deliver(TimerFired(), now, key=operation.key)\n"
        "                        self._execution.pending.events.append(\n"
        "                            self._execution.pending.events[-1]\n                        )\n",
        cases("naps", "timers_in_timers"),
    ),
    Mutant(
        "an engine that is closed keeps its claims",
        DRIVES,
        "        if claims:\n            await self._store.release(",
        "        if not claims:\n            await self._store.release(",
        ("tests/unit/engine/test_leaving.py",),
    ),
    # -- the inbox ------------------------------------------------------------------------------
    Mutant(
        "a signal is received and stays in the inbox",
        MAILBOX,
        "        if not items:\n            del self._items[kind, name]\n"
        "        execution.pending.consumes.append(item.number)\n",
        "        if not items:\n            del self._items[kind, name]\n",
        cases("hears_in_order"),
    ),
    Mutant(
        "a signal leaves the inbox before it is received",
        ARRIVALS,
        "            self._messages.put(item)\n            return\n",
        "            self._messages.put(item)\n"
        "            execution.pending.consumes.append(item.number)\n            return\n",
        crashed("hears_it_too_early", "begins_anew", "asks_twice"),
    ),
    Mutant(
        "the last signal is taken first",
        MAILBOX,
        "        item = items.popleft()\n",
        "        item = items.pop()\n",
        cases("hears_in_order", "many_wait_for_one_name"),
    ),
    Mutant(
        "signals and updates are taken by name, not in the order in which they were sent",
        MAILBOX,
        "            _, kind, name = min(wanted)\n",
        "            _, kind, name = min(wanted, key=lambda one: one[1:])\n",
        cases("takes_what_was_sent_first"),
    ),
    Mutant(
        "a cancel is lost",
        ARRIVALS,
        "                if execution.is_active:",
        "                if execution.main is None:",
        cases("a_cancel_acts"),
    ),
    Mutant(
        "a request to pause is forgotten by a crash",
        ARRIVALS,
        "            self._pauses.append(item.number)\n",
        "            execution.pending.consumes.append(item.number)\n",
        ("tests/unit/engine/test_control.py", "-k", "request_to_pause"),
    ),
    Mutant(
        "a new life loses its signals",
        TURN,
        "        carry_inbox=True,",
        "        carry_inbox=False,",
        cases("begins_anew"),
    ),
    Mutant(
        "a signal that comes early is dropped",
        ARRIVALS,
        "            self._messages.put(item)\n            return\n",
        '            if any(op.wait_kind == "signal" for op in execution.open.values()):\n'
        "                self._messages.put(item)\n            return\n",
        cases("hears_it_too_early"),
    ),
    Mutant(
        "the key of a signal is ignored",
        CLIENT,
        '    id = new_id() if dedup is None else f"{name}: {dedup}"\n',
        "    id = new_id()\n",
        cases("hears_each_once"),
    ),
    # -- replay ---------------------------------------------------------------------------------
    Mutant(
        "a mismatch is ignored",
        EXECUTION,
        "            # scope was a statement when it ran: other tasks may have made statements after it.\n"
        "            raise self._mismatch(event)",
        "            self._statements.clear()",
        (REPLAY,),
    ),
    Mutant(
        "a replay delivers in another order",
        EXECUTION,
        "        with self.loop.inside:\n            for event in events:\n",
        "        with self.loop.inside:\n"
        "            for event in sorted(events, key=lambda e: (e.type.endswith('completed'), e.step_name)):\n",
        cases("appends_to_one_list", "takes_them_as_they_come"),
    ),
    Mutant(
        "a key does not say in which branch",
        "engine/replay/event_loop.py",
        '        return f"{self.path}{name}" if count == 1 else f"{self.path}{name}#{count}"',
        '        return name if count == 1 else f"{name}#{count}"',
        cases("gathers"),
    ),
    Mutant(
        "luck is not the same again",
        TELLING,
        """    return _random.Random(f"{run.seed}/{run.scope.key('random')}")""",
        """    return _random.Random(f"{run.scope.key('random')}{id(run)}")""",
        cases("luck_is_the_same_again"),
    ),
    Mutant(
        "time is that of the machine",
        TELLING,
        '    return the_run("now").now\n',
        '    the_run("now")\n    return datetime.now().astimezone()\n',
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
        "    if region.key in execution.history.closed_scopes:\n",
        "    if False:\n",
        cases("closes_a_scope"),
    ),
    Mutant(
        "a loop begins at its beginning",
        REGION,
        "    iteration = execution.history.iterations.get(key, 0)\n",
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
    Mutant(
        "a snapshot forgets",
        DIGEST,
        "if not index.skips(event)]\n",
        "if not index.skips(event)][:-1]\n",
        ("tests/unit/engine/test_replay_log.py",),
    ),
    Mutant(
        "what came after a snapshot is passed over",
        HISTORY_LOADER,
        "after(snapshot.sequence)",
        "after(snapshot.sequence + 1)",
        ("tests/unit/engine/test_replay_log.py",),
    ),
]
