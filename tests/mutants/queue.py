"""The queue, broken."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

FILE = "stores/memory/queue.py"
TABLES = "stores/memory/tables.py"
PORT = "ports/queue.py"
POLICY = "model/queue_policy.py"
ADMISSION = "engine/runner/admission.py"
TESTS = ("tests/stores/conformance/test_queue_memory.py",)
SHARES = ("tests/stores/queue_policies/test_shares.py",)
RUNS = ("tests/stores/queue_policies/test_runs.py",)

MUTANTS = [
    Mutant(
        "ack without fence",
        TABLES,
        "queued.owner is not None and queued.token == claim.token",
        "queued.owner is not None",
        TESTS,
    ),
    Mutant(
        "a claim given back still counts",
        TABLES,
        "queued is not None and queued.owner is not None and queued.token == claim.token",
        "queued is not None and queued.token == claim.token",
        TESTS,
    ),
    Mutant(
        "attempts are not counted",
        FILE,
        "attempt=attempt + 1)",
        "attempt=1)",
        TESTS,
    ),
    Mutant(
        "attempts are not bounded",
        FILE,
        "                    if attempt >= self.max_attempts:",
        "                    if attempt >= 10 * self.max_attempts:",
        TESTS,
    ),
    Mutant(
        "one attempt too few",
        FILE,
        "                    if attempt >= self.max_attempts:",
        "                    if attempt + 1 >= self.max_attempts:",
        TESTS,
    ),
    Mutant(
        "a poison task ends the search",
        FILE,
        "                    continue\n",
        "                    break\n",
        TESTS,
    ),
    Mutant(
        "an expired lease is not redelivered",
        TABLES,
        "(self.claimed_until is None or self.claimed_until > now)",
        "True",
        TESTS,
    ),
    Mutant(
        "a task in flight is handed out",
        TABLES,
        "        return not self.held(now) and self.ready_at <= now",
        "        return self.ready_at <= now",
        TESTS,
    ),
    Mutant(
        "a task is handed out before its time",
        TABLES,
        "        return not self.held(now) and self.ready_at <= now",
        "        return not self.held(now)",
        TESTS,
    ),
    Mutant(
        "dead letters are dropped",
        FILE,
        "    tables.dead[task.queue, task.run_id, task.id] = DeadTask(task, reason, now)",
        "    del reason, now",
        TESTS,
    ),
    Mutant(
        "a rejected task is put back",
        FILE,
        "            if requeue and queued.task.attempt < self.max_attempts:",
        "            if not drop and queued.task.attempt < self.max_attempts:",
        TESTS,
    ),
    Mutant(
        "the last attempt is put back",
        FILE,
        "            if requeue and queued.task.attempt < self.max_attempts:",
        "            if requeue:",
        TESTS,
    ),
    Mutant(
        "a dropped task is buried",
        FILE,
        "            elif drop and not requeue:",
        "            elif drop and requeue:",
        TESTS,
    ),
    Mutant(
        "the delay of a nack is ignored",
        FILE,
        "                queued.ready_at = now + timedelta(seconds=delay)",
        "                queued.ready_at = now",
        TESTS,
    ),
    Mutant(
        "a returned task jumps the queue",
        FILE,
        "                queued.ready_at = now + timedelta(seconds=delay)",
        "                queued.ready_at += timedelta(seconds=delay)",
        TESTS,
    ),
    Mutant(
        "len counts what is in flight",
        FILE,
        "                queued.task.queue == queue and queued.available(now)\n                for",
        "                queued.task.queue == queue and queued.ready_at <= now\n                for",
        TESTS,
    ),
    Mutant(
        "len counts all queues",
        FILE,
        "                queued.task.queue == queue and queued.available(now)\n                for",
        "                queued.available(now)\n                for",
        TESTS,
    ),
    Mutant(
        "priorities are ignored",
        FILE,
        "key=lambda queued: (queued.task.priority, queued.ready_at, queued.order))",
        "key=lambda queued: (queued.ready_at, queued.order))",
        TESTS,
    ),
    Mutant(
        "arrival counts before readiness",
        FILE,
        "key=lambda queued: (queued.task.priority, queued.ready_at, queued.order))",
        "key=lambda queued: (queued.task.priority, queued.order))",
        TESTS,
    ),
    Mutant(
        "arrival does not count",
        FILE,
        "key=lambda queued: (queued.task.priority, queued.ready_at, queued.order))",
        "key=lambda queued: (queued.task.priority, queued.ready_at, queued.task.id))",
        TESTS,
    ),
    Mutant(
        "a waiting task is overwritten",
        TABLES,
        "        if key in self.tasks:\n            return False\n",
        "        self.tasks.pop(key, None)\n",
        TESTS,
    ),
    Mutant(
        "delay is ignored",
        FILE,
        "        later = now + timedelta(seconds=delay)",
        "        later = now",
        TESTS,
    ),
    Mutant(
        "run_at is ignored",
        FILE,
        "max(later, task.run_at or now)",
        "later",
        TESTS,
    ),
    Mutant(
        "enqueue takes a task that is too large",
        "ports/queue.py",
        "        check_task(task)\n\n\ndef addressed(",
        "        check_task(msgspec.structs.replace(task, input=None))\n\n\ndef addressed(",
        TESTS,
    ),
    Mutant(
        "extend adds to the lease",
        FILE,
        "            queued.claimed_until = self.clock.now() + timedelta(seconds=seconds)",
        "            queued.claimed_until = (queued.claimed_until or self.clock.now()) + timedelta(\n"
        "                seconds=seconds\n            )",
        TESTS,
    ),
    Mutant(
        "extend only says so",
        FILE,
        "            queued.claimed_until = self.clock.now() + timedelta(seconds=seconds)",
        "            self.clock.now()",
        TESTS,
    ),
    Mutant(
        "redrive keeps the attempts",
        FILE,
        "    tables.add_task(msgspec.structs.replace(task, attempt=0), now)",
        "    tables.add_task(task, now)",
        TESTS,
    ),
    Mutant(
        "an empty selection is all",
        FILE,
        "(task_ids is None or dead.task.id in task_ids)",
        "(not task_ids or dead.task.id in task_ids)",
        TESTS,
    ),
    Mutant(
        "purge takes other queues along",
        FILE,
        "        if dead.task.queue == queue and (task_ids",
        "        if (task_ids",
        TESTS,
    ),
    Mutant(
        "the newest dead first",
        FILE,
        "key=lambda one: (one.died_at, one.task.id))[:limit]",
        "key=lambda one: (one.died_at, one.task.id), reverse=True)[:limit]",
        TESTS,
    ),
    Mutant(
        "an enqueue does not send a wake-up",
        FILE,
        "        self.notifier.wake()\n        return added",
        "        return added",
        TESTS,
    ),
    Mutant(
        "a nack does not send a wake-up",
        FILE,
        "                _bury(tables, queued, reason, now)\n        self.notifier.wake()",
        "                _bury(tables, queued, reason, now)",
        TESTS,
    ),
    Mutant(
        "close does not wake",
        FILE,
        "        self._closed = True\n        self.notifier.wake()",
        "        self._closed = True",
        TESTS,
    ),
    Mutant(
        "a closed queue goes on",
        FILE,
        "            if self._closed:\n",
        "            if self._closed and self._tables.tasks:\n",
        TESTS,
    ),
    Mutant(
        "waiting never ends",
        PORT,
        "            if delivery is not None or left <= 0:",
        "            if delivery is not None or left <= -100:",
        TESTS,
    ),
    Mutant(
        "a wake-up before the wait is missed",
        PORT,
        "            wakeups = self.notifier.wakeups\n            delivery = await self.take("
        "queue, owner=owner, visibility=visibility, timeout=timeout)\n",
        "            delivery = await self.take("
        "queue, owner=owner, visibility=visibility, timeout=timeout)\n"
        "            wakeups = self.notifier.wakeups\n",
        TESTS,
    ),
    # -- policies -----------------------------------------------------------------------------
    Mutant(
        "a queue's limit is not kept",
        POLICY,
        "        left = min(left, policy.concurrency - in_flight)",
        "        left = min(left, policy.concurrency)",
        SHARES,
    ),
    Mutant(
        "a key's limit is not kept",
        POLICY,
        "        left = min(left, policy.key_concurrency - fair_key.in_flight)",
        "        left = min(left, policy.key_concurrency)",
        SHARES,
    ),
    Mutant(
        "a rate is not kept",
        POLICY,
        "        left = min(left, policy.rate.limit - started)",
        "        left = min(left, policy.rate.limit)",
        SHARES,
    ),
    Mutant(
        "a pause lets one in",
        POLICY,
        "    if policy.paused:\n        return 0",
        "    if policy.paused:\n        return 1",
        SHARES,
    ),
    Mutant(
        "turns can be saved up",
        POLICY,
        "            turns.append((max(own.pass_value, global_pass), own.pass_value, own.key, own, most))",
        "            turns.append((own.pass_value, own.pass_value, own.key, own, most))",
        TESTS,
    ),
    Mutant(
        "weights do not count",
        POLICY,
        "    return max(1, round(STRIDE / policy.weight(key)))",
        "    return STRIDE",
        SHARES,
    ),
    Mutant(
        "a ticket is held for a time only",
        TABLES,
        "            queued.claimed_until = None\n\n    def drop_tasks",
        "            pass\n\n    def drop_tasks",
        RUNS,
    ),
    Mutant(
        "a signal lets a run push in",
        ADMISSION,
        "    if admissions(items, run.uid):",
        "    if items:",
        RUNS,
    ),
    Mutant(
        "a run that is parked keeps its place in its queue",
        "engine/runner/admission.py",
        "    return msgspec.structs.replace(commit, drops=(TICKET,), consumes=consumes)",
        "    return commit",
        ("tests/stores/queue_policies/test_runs.py",),
    ),
    Mutant(
        "a run that was parked goes on without a place",
        "engine/runner/admission.py",
        "    may_wait = run.status is Status.PENDING or was_parked",
        "    may_wait = run.status is Status.PENDING",
        ("tests/stores/queue_policies/test_runs.py",),
    ),
]
