"""The Redis store and queue, broken: mostly their scripts. Needs servers, which `./dev mutants` starts."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

FOLDER = "stores/redis"
LUA = f"{FOLDER}/lua"
WRITING = f"{LUA}/lib/write_commit.lua"
STORE = ("tests/stores/redis/test_store.py::TestRedisStore",)
QUEUE = ("tests/stores/redis/test_queue.py",)
PARTITIONS = ("tests/stores/redis/test_partitions.py",)
UPKEEP = ("tests/stores/redis/test_upkeep.py",)
POLICY = ("tests/stores/redis/test_fair_queue.py",)

DELETION = ("tests/stores/redis/test_deletion.py",)

MUTANTS = [
    Mutant(
        "redis: what arrives in another partition sends no wake-up",
        f"{FOLDER}/session_store.py",
        "            self.notifier.wake(runs=reached)\n",
        "            pass\n",
        PARTITIONS,
    ),
    Mutant(
        "redis: the wake-up of what arrives in another partition names no run",
        f"{FOLDER}/outbox.py",
        "                reached.add(entry.send.run)\n",
        "",
        PARTITIONS,
    ),
    Mutant(
        "redis: of several primaries only the first may be too old",
        f"{FOLDER}/location.py",
        "    for one in found:\n        if _is_too_old",
        "    for one in found[:1]:\n        if _is_too_old",
        ("tests/stores/test_old_servers.py",),
    ),
    Mutant(
        "redis: what is below a root that is deleted is not marked",
        f"{LUA}/lib/run_end.lua",
        "    if tree.deletion then\n        set_deletion(",
        "    if false then\n        set_deletion(",
        DELETION,
    ),
    Mutant(
        "redis: a script acts on a run that is being deleted",
        f"{LUA}/lib/runs.lua",
        "        if not key or is_being_deleted(id, false) then",
        "        if not key then",
        DELETION,
    ),
    Mutant(
        "redis: a run that has ended and is being deleted is found",
        f"{LUA}/lib/runs.lua",
        "        if run and deleting and is_finished(run) and is_being_deleted(id, true) then",
        "        if false then",
        DELETION,
    ),
    Mutant(
        "redis: a run ends while those that have ended are being deleted",
        f"{LUA}/lib/run_end.lua",
        "local function need_end(run_id)\n    is_being_deleted(run_id, true)\n",
        "local function need_end(run_id)\n",
        DELETION,
    ),
    Mutant(
        "redis: a read shows a run that is being deleted",
        f"{FOLDER}/find.py",
        "        if any(found[: len(parts)]):",
        "        if False:",
        DELETION,
    ),
    Mutant(
        "redis: a search shows runs that are being deleted",
        f"{FOLDER}/find.py",
        "        None if id in hidden else to_run(id, reply)",
        "        to_run(id, reply)",
        DELETION,
    ),
    Mutant(
        "redis: a task of a run that is being deleted is handed out",
        f"{LUA}/claim_task.lua",
        "is_being_deleted(args.run, false)\n",
        "",
        DELETION,
    ),
    Mutant(
        "redis: a queue hands out a task of a run that is being deleted",
        f"{LUA}/take_plain.lua",
        "    if is_being_deleted(task.run, false) then",
        "    if false then",
        DELETION,
    ),
    Mutant(
        "redis: a queue with rules hands out a task of a run that is being deleted",
        f"{LUA}/lease_tasks.lua",
        "    if task and is_being_deleted(task.run, false) then",
        "    if false then",
        DELETION,
    ),
    Mutant(
        "redis: a worker leaves a deletion that a dead process has begun",
        f"{FOLDER}/session_store.py",
        "            await delete.finish_all(server, timeout=timeout)\n            posted = ",
        "            posted = ",
        DELETION,
    ),
    Mutant(
        "redis: a tree in which a run has begun since the check is deleted",
        f"{LUA}/lib/runs.lua",
        "            cancel_checks(id)\n",
        "",
        DELETION,
    ),
    Mutant(
        "redis: a life that replaces a large tree takes open runs with it",
        f"{LUA}/delete_portion.lua",
        "    if run and (deletion.kind == 'all' or is_finished(run)) then",
        "    if run then",
        DELETION,
    ),
    Mutant(
        "redis: a run behind many that this code has rejected is not found",
        f"{FOLDER}/claims.py",
        "        tried = min(wanted << look, max(wanted, TRIED))",
        "        tried = wanted",
        ("tests/stores/redis/test_upkeep.py::TestServerTime",),
    ),
    Mutant(
        "redis: a large tree is deleted by one script",
        f"{LUA}/lib/deletions.lua",
        "local PORTION = 200",
        "local PORTION = 20000",
        DELETION,
    ),
    Mutant(
        "redis: the fence is dropped",
        WRITING,
        "    if not commit.force and (head.token ~= '0' or commit.token) and commit.token ~= head.token"
        " then",
        "    if false then",
        STORE,
    ),
    Mutant(
        "redis: a task is acknowledged although its commit is refused",
        f"{LUA}/commit.lua",
        "    outcomes[n] = refusal(commit)\n",
        "    outcomes[n] = refusal(commit)\n"
        "    for _, claim in ipairs(outcomes[n] and commit.finishes or {}) do\n"
        "        local task, _, name = held_task(claim)\n"
        "        if task then remove_task(name, task) end\n"
        "    end\n",
        STORE,
    ),
    Mutant(
        "redis: a task is finished under a lost claim",
        WRITING,
        "        if need('task:state') and not held_task(claim) then",
        "        if need('task:state') and false then",
        STORE,
    ),
    Mutant(
        "redis: a retry is written again",
        WRITING,
        "    if run and run.commit == commit.id then",
        "    if false then",
        STORE,
    ),
    Mutant(
        "redis: an event is written twice",
        WRITING,
        "            if sequence then\n                return { 'duplicate'",
        "            if false then\n                return { 'duplicate'",
        STORE,
    ),
    Mutant(
        "redis: an atomic batch is written in part",
        f"{LUA}/commit.lua",
        "if is_refused and ARGV[3] == '1' then",
        "if false then",
        STORE,
    ),
    Mutant(
        "redis: parking loses a wake-up",
        WRITING,
        "    local is_unseen = has_unseen(run, commit.seen)",
        "    local is_unseen = false",
        STORE,
    ),
    Mutant(
        "redis: an item is taken twice",
        f"{LUA}/lib/inbox.lua",
        "    if known then\n",
        "    if false then\n",
        STORE,
    ),
    Mutant(
        "redis: any token settles a task",
        f"{LUA}/settle_delivery.lua",
        "if not held then",
        "if false then",
        QUEUE,
    ),
    Mutant(
        "redis: the outbox is skipped",
        WRITING,
        "            put_in_outbox(send.entry)",
        "            has_outbox_entries = true",
        PARTITIONS,
    ),
    Mutant(
        "redis: an entry of the outbox is taken in twice",
        f"{LUA}/receive_entry.lua",
        "    if last and tonumber(last) >= tonumber(args.number) then",
        "    if false then",
        PARTITIONS,
    ),
    Mutant(
        "redis: a partition is spread over slots",
        f"{FOLDER}/keys.py",
        '            (f"{prefix}:{{{part}}}:" if tagged else f"{prefix}:").encode()',
        '            (f"{prefix}:{part}:" if tagged else f"{prefix}:").encode()',
        PARTITIONS,
    ),
    Mutant(
        "redis: a slot on its way is asked for as if it had arrived",
        f"{FOLDER}/connection.py",
        "                    asking.add(n)",
        "                    pass",
        ("tests/stores/redis/test_moving.py",),
    ),
    Mutant(
        "redis: what cannot be found again is asked for twice",
        f"{FOLDER}/connection.py",
        "        attempt.sent = True\n        await connection.send_packed_command(",
        "        await connection.send_packed_command(packed, check_health=False)\n"
        "        await connection.read_response(disable_decoding=True)\n"
        "        await connection.send_packed_command(",
        ("tests/stores/redis/test_faults.py",),
    ),
    Mutant(
        "redis: a run that went back is handed out",
        f"{LUA}/claim_runs.lua",
        "    if not run or is_ended(run) or run.quarantine then",
        "    if not run or is_ended(run) then",
        UPKEEP,
    ),
    Mutant(
        "redis: nobody notices that Redis went back",
        f"{FOLDER}/failover_guard.py",
        "                or acknowledged.revision <= run.revision\n",
        "                or acknowledged.revision >= 0\n",
        UPKEEP,
    ),
    Mutant(
        "redis: a run that comes back is taken for one that was set back",
        f"{FOLDER}/failover_guard.py",
        "            elif await self._was_restored(server, run.id, acknowledged, timeout):",
        "            elif False:",
        UPKEEP,
    ),
    Mutant(
        "redis: who closes does not send a wake-up for what it has sent",
        f"{FOLDER}/notifier.py",
        "            if self._pending_kinds:\n                with",
        "            if False:\n                with",
        ("tests/unit/worker/test_wakeups.py::test_who_sends_something_and_ends_is_heard[redis]",),
    ),
    Mutant(
        "redis: delete leaves timers",
        f"{LUA}/lib/run_end.lua",
        "        call('UNLINK', at(timer_name(id, timer)))\n",
        "",
        ("tests/stores/redis/test_keys.py",),
    ),
    Mutant(
        "redis: nobody checks the limits when a task begins",
        f"{LUA}/lib/slots.lua",
        "    if limits.concurrency and count_slots(head) >= limits.concurrency then",
        "    if false then",
        POLICY,
    ),
    Mutant(
        "redis: a slot ends before its lease is extended",
        f"{LUA}/lib/tasks.lua",
        "    return slot_ends and 'done' or 'slot'",
        "    return 'done'",
        POLICY,
    ),
    Mutant(
        "redis: a slot elsewhere is not given back",
        f"{LUA}/lib/slots.lua",
        "            call('SADD', at('slot:returns'),",
        "            local _ = (",
        POLICY,
    ),
    Mutant(
        "redis: what was under way before there were rules is not counted",
        f"{LUA}/write_policy.lua",
        "                report(name, find_task(name), args.mark)",
        "                find_task(name)",
        POLICY,
    ),
    Mutant(
        "redis: a lease that has ended comes back over the limit",
        f"{LUA}/lib/slots.lua",
        "    if not slot and not has_slot(limits_of(wanted.scope), wanted.scope, wanted.key) then",
        "    if false then",
        POLICY,
    ),
    Mutant(
        "redis: a forked child speaks on the connections of its parent",
        "stores/redis/session.py",
        "        if server.is_inherited:\n",
        "        if False:\n",
        ("tests/unit/test_forks.py", "-k", "redis"),
    ),
    Mutant(
        "redis: a forked child waits for the tasks of its parent",
        "stores/redis/notifier.py",
        "        if self._pid != os.getpid():\n",
        "        if False:\n",
        ("tests/unit/test_forks.py", "-k", "redis"),
    ),
    Mutant(
        "a store that was flushed begins again in silence",
        "stores/redis/lua/lib/prelude.lua",
        "if context.identity and meta[1]",
        "if false and meta[1]",
        ("tests/stores/redis/test_faults.py",),
    ),
]
