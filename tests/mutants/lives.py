"""The lives of runs, broken: what becomes of children and messages when one ends."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

CHILD = "engine/operations/child.py"
TURN = "engine/replay/commit_builder.py"
RETRYING = "client/history_reset.py"
UPDATES = "engine/replay/updates.py"
ARRIVALS = "engine/runner/inbox_reader.py"
ASKS = "client/asks.py"
TERMINATING = "client/terminate.py"
DELETING = "client/terminate.py"
BEGINNING = "client/client.py"
REPLANTING = "engine/replay/history_reset.py"
REPLANT = "client/history_reset.py"
LUA = "stores/redis/lua"
PG = "stores/postgres/functions"
SQLITE_KIT = "tests/stores/conformance/test_sqlite.py::TestSqliteStore"
POSTGRES_KIT = "tests/stores/postgres/test_conformance.py::TestPostgresStore"
REDIS_KIT = "tests/stores/redis/test_store.py::TestRedisStore"


def story(words: str) -> tuple[str, ...]:
    """The stories about it, on memory."""
    return ("tests/campaigns/lives/test_lives.py", "-k", f"memory and ({words})")


def kit(words: str, store: str = "tests/stores/conformance/test_memory.py") -> tuple[str, ...]:
    """The tests of the kit about it."""
    return (store, "-k", words)


AS_SEEN = "as_they_were_seen or went_on_is_not"
GOES_ON = "goes_on or facts_of_the_tree or its_keys"

MUTANTS = [
    Mutant(
        "what a branch asked for after the failure gets another key",
        RETRYING,
        "        asked={**asked, **started.asked},\n",
        "",
        ("tests/unit/engine/test_lineage.py",),
    ),
    Mutant(
        "what a retry hands on leaves the inbox before it is recorded",
        ARRIVALS,
        "        self._earlier[item.name] = (item, report)\n",
        "        self._earlier[item.name] = (item, report)\n"
        "        self._execution.pending.consumes.append(item.number)\n",
        ("tests/campaigns/lives/test_retrying.py",),
    ),
    Mutant(
        "a retry tries again what was left",
        "engine/operations/step.py",
        "        again = again and not self.is_awaited\n",
        "",
        story("what_was_left"),
    ),
    Mutant(
        "a retry takes what was left for given up",
        REPLANTING,
        "    return isinstance(payload, OperationAbandoned) and not payload.awaited",
        "    return isinstance(payload, OperationAbandoned)",
        story("what_was_left"),
    ),
    Mutant(
        "a retry takes what was cut off for a death",
        REPLANTING,
        "                ended[key] = cut_off\n",
        "                pass\n",
        story("was_cut_off"),
    ),
    Mutant(
        "a retry repeats what must not be",
        "engine/operations/step.py",
        "        again = again or failed.error_type not in UNKNOWN_ENDS\n",
        "        again = True\n",
        story("was_cut_off"),
    ),
    Mutant(
        "a retry does again what a branch did after the failure",
        REPLANTING,
        "    inputs = _asked_beside(kept, cut, failed)\n    done: ",
        "    inputs: dict[str, Raw] = {}\n    done: ",
        story("what_a_branch_did"),
    ),
    Mutant(
        "a retry takes what a cancelled branch did for done",
        REPLANTING,
        "            started.discard(branch)",
        "            pass",
        story("what_a_branch_did"),
    ),
    Mutant(
        "what a retry keeps is taken by the next life",
        ARRIVALS,
        "        if report.input is None or not self._execution.is_own(report.life):",
        "        if report.input is None:",
        story("not_for_the_next_life"),
    ),
    Mutant(
        "a retry of a step in a scope has fewer attempts",
        RETRYING,
        "        recover_to=failed_within(history, run.recover_to),\n",
        "        recover_to=run.recover_to,\n",
        story("as_often_again"),
    ),
    Mutant(
        "a retry does again what ended after the failure",
        RETRYING,
        "        sends=(*_handed_on(outcomes, fresh), *sends),",
        "        sends=sends,",
        story("ended_after_the_failure"),
    ),
    Mutant(
        "a retry takes what failed beside the failure for a death",
        REPLANTING,
        "    return [*done, *((key, report) for key, report in ended.items() if key not in reported)]",
        "    return done",
        story("ended_after_the_failure"),
    ),
    Mutant(
        "a retry forgets the items of a map that ended after the failure",
        REPLANTING,
        "                done.append((key, StepReport(items=progress, life=life)))",
        "                pass",
        story("ended_after_the_failure"),
    ),
    Mutant(
        "a retry does again what was done beside a child",
        REPLANTING,
        "        name = kept[position].step_name\n        return [",
        "        name = kept[position].step_name\n        if kept[position].type == EventType.CHILD_FAILED:\n"
        "            return before_step(kept, name)\n        return [",
        story("beside_a_child"),
    ),
    Mutant(
        "a later life names its children like the first",
        "engine/replay/execution.py",
        'return child_id(self.run_id, key, self.uid if later else "")',
        "return child_id(self.run_id, key)",
        story("continue_as_new_cancels"),
    ),
    Mutant(
        "continue_as_new leaves its children to themselves",
        TURN,
        "        sends=(*pending.sends, *child_cancellations(execution)),",
        "        sends=(*pending.sends,),",
        story("continue_as_new_cancels"),
    ),
    Mutant(
        "answers go along for one life",
        TURN,
        "        answers=answers_to_keep(before, history),",
        '        answers=answers_to_keep(WorkflowStarted(workflow_name="", version=""), history),',
        story("answers_outlive"),
    ),
    Mutant(
        "a cancel that comes with continue_as_new is dropped",
        ARRIVALS,
        "LEFT_TO_NEXT_LIFE = frozenset({ItemKind.CANCEL})",
        "LEFT_TO_NEXT_LIFE: frozenset[str] = frozenset()",
        story("reaches_the_next_life"),
    ),
    Mutant(
        "an answer to a halt does not wait to be asked for",
        ARRIVALS,
        "if answer.question is not None and not isinstance(self._open(item.name), AskWait):",
        "if answer.question == b'' and not isinstance(self._open(item.name), AskWait):",
        story("consumed_signals"),
    ),
    Mutant(
        "an answer of an earlier life counts for whatever is asked now",
        ARRIVALS,
        "        elif ask.token != answer.ask and not _is_same_question(ask, answer):",
        "        elif ask.token != answer.ask and answer.question is None:",
        story("does_not_count_after_a_retry"),
    ),
    Mutant(
        "an answer reaches whatever is asked under its key",
        ARRIVALS,
        "        elif ask.token != answer.ask and not _is_same_question(ask, answer):",
        "        elif False:",
        story("each_life_asks or does_not_count_after_a_retry"),
    ),
    Mutant(
        "every answer has an inbox id of its own",
        ASKS,
        "kind=ItemKind.RESUME, name=event.step_name, id=ask.item_id, data=Raw(to_json(answer))",
        "kind=ItemKind.RESUME, name=event.step_name, id=answer_id, data=Raw(to_json(answer))",
        story("one_is_first or reaches_the_question"),
    ),
    Mutant(
        "an answer that names no question goes to the first one",
        ASKS,
        "        if len(left) != 1 and len(tokens) != 1:",
        "        if not tokens:",
        story("reaches_the_question"),
    ),
    Mutant(
        "a run that was terminated still asks",
        TERMINATING,
        "            attributes = without_asks(run.attributes)",
        "            attributes = dict(run.attributes)",
        story("has_ended_asks_nothing"),
    ),
    Mutant(
        "a question whose answer nothing has read yet is listed as open",
        ASKS,
        "    given = await _unread(backend, run) if run.inbox else {}\n    found = []",
        "    given: dict[str, Answer] = {}\n    found = []",
        story("one_is_first"),
    ),
    Mutant(
        "a retried question has another id",
        "engine/operations/ask.py",
        "                self.asked, self.to = payload, payload.to\n",
        "                self.to = payload.to\n",
        story("a_question_from_before_the_failure"),
    ),
    Mutant(
        "a question is not escalated",
        "engine/operations/ask.py",
        "            if follow_up.escalate:\n                execution.record",
        "            if not follow_up.escalate:\n                execution.record",
        story("is_escalated"),
    ),
    Mutant(
        "reminders go on after the answer",
        "engine/operations/ask.py",
        "        following.cancel()",
        "        pass",
        story("is_escalated"),
    ),
    Mutant(
        "a notification that fails fails the run",
        "engine/operations/ask.py",
        "stays open\n                return\n",
        "stays open\n                wait.reject(RuntimeError('no'))\n",
        story("notification_that_fails"),
    ),
    Mutant(
        "a question that is closed is still listed",
        "engine/replay/commit_builder.py",
        "    if pending.attributes or asks or ASKING in run.attributes:",
        "    if pending.attributes or asks:",
        story("has_ended_asks_nothing or of_all_runs"),
    ),
    Mutant(
        "a rejected answer blocks the next one",
        "model/asks.py",
        'return f"answer {self.token} {self.rejected}" if self.rejected else f"answer {self.token}"',
        'return f"answer {self.token}"',
        ("tests/unit/engine/test_rejected_messages.py", "-k", "memory and set_aside"),
    ),
    Mutant(
        "what a run shows in the commit that starts it is forgotten",
        "engine/runner/engine.py",
        "            run = msgspec.structs.replace(run, **commit.change.values())",
        "            pass",
        ("tests/unit/engine/test_control.py", "-k", "before_its_first_step"),
    ),
    Mutant(
        "an answer is sent without a check of its value",
        ASKS,
        "    if problem is not None:\n        raise InvalidValue",
        "    if problem == '':\n        raise InvalidValue",
        story("does_not_fit_is_refused"),
    ),
    Mutant(
        "terminate does not mind what was written meanwhile",
        TERMINATING,
        "        expected=expected,",
        "        expected=None,",
        story("begins_meanwhile"),
    ),
    Mutant(
        "terminate tells of a newer claim when the run has continued and ended",
        TERMINATING,
        "if not isinstance(outcome, Conflict | Fenced):",
        "if not isinstance(outcome, Conflict):",
        story("next_life_has_ended"),
    ),
    Mutant(
        "a retried run waits for a child that was deleted",
        RETRYING,
        "            if await store.find_one(spawned.child_run_id) is not None:\n                continue",
        "            continue",
        story("deleted_child_again"),
    ),
    Mutant(
        "a replaced run leaves its children to themselves",
        BEGINNING,
        '                await RunHandle[Any](backend, run_id).terminate("replaced by a new start")',
        "                pass",
        story("replaced_run"),
    ),
    Mutant(
        "retry begins every child again",
        RETRYING,
        "        elif await goes_on(spawned):",
        "        elif False:",
        story("waits_for_the_same"),
    ),
    Mutant(
        "retry waits for a cancelled child",
        RETRYING,
        "    return child.status is Status.COMPLETED",
        "    return True",
        story("cancelled_child_again"),
    ),
    Mutant(
        "retry does not wait until a child has been cancelled",
        RETRYING,
        "            child = await ended(store, child.id, ending, timeout)",
        "            pass",
        ("tests/campaigns/lives/test_retrying.py",),
    ),
    Mutant(
        "retry forgets the children that are done",
        RETRYING,
        "        carry_tree=True,",
        "        carry_tree=False,",
        story("ended_meanwhile"),
    ),
    Mutant(
        "an adopted child is not looked for",
        CHILD,
        "                own_id = self._execution.child_id(self.key)\n"
        "                self.is_id_checked = self.explicit_id is None and child_id == own_id\n",
        "                self.is_id_checked = self.explicit_id is None\n",
        story("ended_meanwhile"),
    ),
    Mutant(
        "retry adopts only what it keeps the history of",
        RETRYING,
        "        adopts=adopts,\n",
        "        adopts={},\n",
        story("after_the_failure"),
    ),
    Mutant(
        "retry loses answers",
        RETRYING,
        "        answers=answers_to_keep(started, cut),\n",
        "        answers=[],\n",
        story("answers_outlive"),
    ),
    Mutant(
        "retry loses the inbox",
        RETRYING,
        "        carry_inbox=True,",
        "        carry_inbox=False,",
        story("retry_keeps_signals"),
    ),
    Mutant(
        "retry does not give back what was consumed",
        RETRYING,
        "    again = _consumed(history, cut)",
        "    again: list[Item] = []",
        story("consumed_signals"),
    ),
    Mutant(
        "what was consumed comes after what waits",
        RETRYING,
        "            consumes.append(item.number)\n            again.append(item)",
        "            pass",
        story("consumed_signals"),
    ),
    Mutant(
        "a fork waits for the children of the other run",
        REPLANT,
        "        children[key] = own or child_id(run_id, key)\n",
        "        children[key] = spawned.child_run_id\n",
        story("fork"),
    ),
    Mutant(
        "ids of children grow with every generation",
        "model/ids.py",
        "    if len(path.encode()) - len(root.encode()) <= CHILD_PATH_BYTES:",
        "    if path:",
        story("any_depth"),
    ),
    Mutant(
        "delete does not look whether something runs",
        DELETING,
        "            only_ended=True,\n",
        "            only_ended=False,\n",
        story("tree_is_deleted"),
    ),
    Mutant(
        "a forced deletion ends the runs before it removes them",
        DELETING,
        "                    open_at[open], sends[open] = await _seen(store, run_id, open)\n",
        "                    open_at[open], sends[open] = await _seen(store, run_id, open)\n"
        "                    from outlast.client.terminate import terminated\n"
        '                    await terminated(store, open, "deleted", attempt)\n',
        story("crash_before"),
    ),
    Mutant(
        "a forced deletion forgets the runs outside",
        DELETING,
        "        sends = outcome_sends(run, await store.history(run_id), end)\n",
        "        sends: list[Send] = []\n",
        story("crash_after or waits_for_a_deleted"),
    ),
    Mutant(
        "a forced deletion takes a run that went on",
        DELETING,
        "        return run.commit_id, [",
        "        return None, [",
        story("begins_meanwhile_is_cancelled"),
    ),
    Mutant(
        "a forced deletion never holds a run up",
        DELETING,
        "                if races[open] % RACES == 0:\n",
        "                assert races[open] < 20\n                if races[open] < 0:\n",
        story("always_faster"),
    ),
    # -- the stores ---------------------------------------------------------------------------
    Mutant(
        "memory: a replaced life takes all descendants along",
        "stores/memory/commit.py",
        "        tables.forget(commit.run_id, spare=_spared(tables, commit))\n",
        "        tables.forget(commit.run_id)\n",
        kit(GOES_ON),
    ),
    Mutant(
        "memory: receipts are carried for ever",
        "stores/memory/commit.py",
        "                if number > last - RECEIPTS_CARRIED or number in life.inbox\n",
        "                if number\n",
        kit("receipts_do_not_grow"),
    ),
    Mutant(
        "sqlite: a replaced life takes all descendants along",
        "stores/sqlite/commit.py",
        "    gone = forget_tree(unit.connection, commit.run_id, spare=spared)",
        "    gone = forget_tree(unit.connection, commit.run_id)",
        kit(GOES_ON, SQLITE_KIT),
    ),
    Mutant(
        "sqlite: who goes on loses the facts",
        "stores/sqlite/delete.py",
        "    if run_id in ids and not spare:",
        "    if run_id in ids:",
        kit(GOES_ON, SQLITE_KIT),
    ),
    Mutant(
        "sqlite: a tree that runs is deleted",
        "stores/sqlite/delete.py",
        "    open = find_open(connection, run_id) if only_ended else []",
        "    open: list[str] = []",
        kit("not_ended", SQLITE_KIT),
    ),
    Mutant(
        "memory: a deletion takes an open run that went on",
        "stores/memory/delete.py",
        "not in (tables.lives[id].run.commit_id, None)\n",
        '== "unseen"\n',
        kit(AS_SEEN),
    ),
    Mutant(
        "memory: a deletion delivers nothing",
        "stores/memory/delete.py",
        "            for send in sends:\n                deliver(tables, send, now)\n",
        "",
        kit(AS_SEEN),
    ),
    Mutant(
        "sqlite: a deletion takes an open run that went on",
        "stores/sqlite/delete.py",
        "    return seen is None or (row is not None and row.commit_id == seen)\n",
        "    return True\n",
        kit(AS_SEEN, SQLITE_KIT),
    ),
    Mutant(
        "sqlite: a deletion delivers nothing",
        "stores/sqlite/delete.py",
        "        deliver(unit, send)\n    unit.write()\n",
        "        deliver(unit, send)\n",
        kit(AS_SEEN, SQLITE_KIT),
    ),
    Mutant(
        "postgres: a replaced life takes all descendants along",
        f"{PG}/write_commit.sql",
        "            PERFORM @delete_life(c_run, p ? 'carry_tree');",
        "            PERFORM @delete_tree(c_run);",
        kit(GOES_ON, POSTGRES_KIT),
    ),
    Mutant(
        "postgres: receipts are carried for ever",
        f"{PG}/write_commit.sql",
        "               AND (t.number > r.inbox - 1000 OR EXISTS (",
        "               AND (true OR EXISTS (",
        kit("receipts_do_not_grow", POSTGRES_KIT),
    ),
    Mutant(
        "postgres: a tree that runs is deleted",
        f"{PG}/delete.sql",
        "    IF only_ended THEN",
        "    IF false THEN",
        kit("not_ended", POSTGRES_KIT),
    ),
    Mutant(
        "postgres: a deletion takes an open run that went on",
        f"{PG}/delete.sql",
        "                  WHERE s.id = r.id AND coalesce(s.commit_id, r.commit_id) = r.commit_id\n",
        "                  WHERE s.id = r.id\n",
        kit(AS_SEEN, POSTGRES_KIT),
    ),
    Mutant(
        "postgres: a deletion delivers before it is refused",
        f"{PG}/delete.sql",
        "    gone := false;\n    alive := '{}';\n",
        "    gone := false;\n    alive := '{}';\n"
        "    PERFORM @deliver_item(@now(at, shift), s.run, NULL, s.id, s.kind, '', '', NULL)\n"
        "    FROM jsonb_to_recordset(sends::jsonb) AS s (run text, id text, kind text);\n",
        kit(AS_SEEN, POSTGRES_KIT),
    ),
    Mutant(
        "the second of two retries is told that it is fenced",
        "client/handle.py",
        "            with suppress(Fenced):\n",
        "            with suppress(ZeroDivisionError):\n",
        ("tests/unit/client/test_retry_races.py",),
    ),
    Mutant(
        "redis: a replaced life takes all descendants along",
        f"{LUA}/lib/write_commit.lua",
        "            tree = plan_tree(id, spares and (commit.carry_tree and 'all' or 'open'))",
        "            tree = plan_tree(id)",
        kit(GOES_ON, REDIS_KIT),
    ),
    Mutant(
        "redis: receipts are carried for ever",
        f"{LUA}/lib/write_commit.lua",
        "        trim_receipts(born)\n",
        "",
        kit("receipts_do_not_grow", REDIS_KIT),
    ),
    Mutant(
        "redis: a tree that runs is deleted",
        f"{LUA}/delete.lua",
        "    if #open > 0 then",
        "    if #open < 0 then",
        kit("not_ended", REDIS_KIT),
    ),
    Mutant(
        "redis: a deletion takes an open run that went on",
        f"{LUA}/delete.lua",
        "    return at_commit == false or at_commit == (run.commit or '')\n",
        "    return at_commit ~= nil\n",
        kit(AS_SEEN, REDIS_KIT),
    ),
    Mutant(
        "redis: a deletion of a large tree takes an open run that went on",
        "stores/redis/delete.py",
        'and open_at.get(id, "unseen") not in ((commit or b"").decode(), None)',
        "and id not in open_at",
        kit(AS_SEEN, "tests/stores/redis/test_deletion.py::TestPortions"),
    ),
    Mutant(
        "redis: a deletion does not write back what it delivers",
        f"{LUA}/delete.lua",
        "flush()\n",
        "",
        kit(AS_SEEN, REDIS_KIT),
    ),
]
