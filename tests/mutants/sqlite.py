"""The SQLite store and queue, broken."""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

COMMIT = "stores/sqlite/commit.py"
BOOK = "stores/sqlite/unit_of_work.py"
CLAIMS = "stores/sqlite/claims.py"
DELETING = "stores/sqlite/delete.py"
INBOXES = "stores/sqlite/inbox.py"
WRITER = "stores/sqlite/writer.py"
SHARING = "stores/sqlite/write_batching.py"
SQL = "stores/sqlite/statements"
STORE = ("tests/stores/conformance/test_sqlite.py::TestSqliteStore",)
BOTH = ("tests/stores/conformance/test_sqlite.py",)
OWN = ("tests/stores/sqlite", "tests/stores/conformance/test_sqlite.py::TestSqliteStore")

LIVENESS = "stores/sqlite/liveness.py"
ALIVE = ("tests/stores/sqlite/test_liveness.py",)

MUTANTS = [
    Mutant(
        "sqlite liveness: a free lock on another machine is a death",
        LIVENESS,
        "bool(self._boot) and owner.boot == self._boot and",
        "bool(self._boot) and",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: any file is the owner's",
        LIVENESS,
        "if (str(status.st_dev), str(status.st_ino)) != (owner.device, owner.inode):",
        "if False:",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: a missing file is a death",
        LIVENESS,
        "    except OSError:\n        return False\n    try:\n        status",
        "    except OSError:\n        return True\n    try:\n        status",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: locks count on every filesystem",
        LIVENESS,
        "and self._filesystem(self.folder) in LOCAL else",
        "else",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: a process is dead though another has its name",
        LIVENESS,
        "gone = sorted({owner.owner for owner in dead} - alive)",
        "gone = sorted({owner.owner for owner in dead})",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: a new process does not check those that died before",
        LIVENESS,
        "        self.end_leases(connection, now)\n        if self._lock is None:",
        "        if self._lock is None:",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: a run that kills its owners is taken over at once again and again",
        f"{SQL}/liveness.sql",
        "  AND key NOT IN (SELECT key FROM deaths);",
        ";",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: a forked child keeps the lock",
        "stores/sqlite/database.py",
        "        database.liveness.abandon()\n",
        "        pass\n",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: step processes do not inherit the lock",
        "stores/sqlite/store.py",
        "        return self._session.database.liveness.files\n",
        "        return ()\n",
        ALIVE,
    ),
    Mutant(
        "sqlite liveness: runs whose owners died twice are claimed all at once",
        LIVENESS,
        "[: self._suspects_at_once]",
        "[:]",
        ("tests/campaigns/engine_kills/test_poison.py",),
    ),
    Mutant(
        "sqlite liveness: a waiting process is not woken by a death",
        "stores/sqlite/notifier.py",
        "        if self._has_dead_owner():",
        "        if False:",
        ALIVE,
    ),
    Mutant(
        "sqlite: nothing is refused",
        COMMIT,
        "    answer: Outcome | None = again(commit, head) or refusal(commit, head)",
        "    answer: Outcome | None = again(commit, head)",
        STORE,
    ),
    Mutant(
        "sqlite: a retry is written again",
        COMMIT,
        "again(commit, head) or refusal(commit, head)",
        "refusal(commit, head)",
        STORE,
    ),
    Mutant(
        "sqlite: an atomic batch is written in part",
        COMMIT,
        "    if atomic and any(isinstance(answer, Refusal) for answer in decided):",
        "    if atomic and all(isinstance(answer, Refusal) for answer in decided):",
        STORE,
    ),
    Mutant(
        "sqlite: a task is finished under a lost claim",
        COMMIT,
        "    if lost is not None:",
        "    if lost is not None and not commit.events:",
        STORE,
    ),
    Mutant(
        "sqlite: parking loses a wake-up",
        COMMIT,
        "    if has_unseen(unit.connection, row, commit.seen):",
        "    if False:",
        STORE,
    ),
    Mutant(
        "sqlite: a run is released although an item waits",
        COMMIT,
        "        row.runnable_at = unit.now\n        row.is_moved = True\n        return True",
        "        row.runnable_at = unit.now\n        row.owner = None\n        row.is_moved = True\n"
        "        return True",
        STORE,
    ),
    Mutant(
        "sqlite: force leaves the old token valid",
        COMMIT,
        "        _own(row, unit.counters.next_token(), owner=None, until=None)",
        "        _own(row, row.token, owner=None, until=None)",
        STORE,
    ),
    Mutant(
        "sqlite: an existing child is begun again",
        COMMIT,
        "        if unit.find(start.run.id) is None:",
        "        if True:",
        STORE,
    ),
    Mutant(
        "sqlite: tokens begin anew with each transaction",
        BOOK,
        "            self._connection.execute(WRITE_COUNTERS, (self._token, self._key))",
        "            self._connection.execute(WRITE_COUNTERS, (0, self._key))",
        STORE,
    ),
    Mutant(
        "sqlite: a history has gaps",
        BOOK,
        "        row.sequence += len(events)",
        "        row.sequence += len(events) + 1",
        STORE,
    ),
    Mutant(
        "sqlite: any token renews",
        CLAIMS,
        "    if run is None or run.uid != claim.uid or run.token != claim.token:",
        "    if run is None or run.uid != claim.uid:",
        STORE,
    ),
    Mutant(
        "sqlite: a released claim is still good",
        CLAIMS,
        "    return run if run.owner is not None else None",
        "    return run",
        STORE,
    ),
    Mutant(
        "sqlite: runs are claimed whose code is not here",
        CLAIMS,
        "        if due <= now and (request.workflows is None or workflow in request.workflows):",
        "        if due <= now:",
        STORE,
    ),
    Mutant(
        "sqlite: delete leaves timers",
        DELETING,
        '"events", "inbox", "receipts", "timers", "entries"',
        '"events", "inbox", "receipts", "entries"',
        ("tests/stores/sqlite/test_deletion.py",),
    ),
    Mutant(
        "sqlite: delete leaves idempotency keys",
        DELETING,
        '    connection.execute(DELETE_KEYS_OF_TREE, {"id": run_id})\n',
        "",
        STORE,
    ),
    Mutant(
        "sqlite: delete leaves tasks",
        DELETING,
        "        connection.executemany(sql, [(id,) for id in ids])",
        "        connection.executemany(sql, [])",
        STORE,
    ),
    Mutant(
        "sqlite: retention forgets who is alive below",
        f"{SQL}/delete.sql",
        "        AND (c.status NOT IN ('completed', 'failed', 'cancelled')",
        "        AND 1 = 0 AND (c.status IN ('pending')",
        STORE,
    ),
    Mutant(
        "sqlite: an item is taken twice",
        INBOXES,
        "        if known:\n",
        "        if False:\n",
        STORE,
    ),
    Mutant(
        "sqlite: an ended run acknowledges items",
        INBOXES,
        "    if row.is_terminal:\n",
        "    if False:\n",
        STORE,
    ),
    Mutant(
        "sqlite: a send does not wake",
        INBOXES,
        "    due = unit.now if row.runnable_at is None else min(row.runnable_at, unit.now)",
        "    due = row.runnable_at",
        STORE,
    ),
    Mutant(
        "sqlite: history includes the event it comes after",
        f"{SQL}/events.sql",
        "AND sequence > ?",
        "AND sequence >= ?",
        STORE,
    ),
    Mutant(
        "sqlite: a failed transaction is not rolled back",
        WRITER,
        "between any two lines\n            self._roll_back()",
        "between any two lines\n            self.connection.execute('COMMIT')",
        OWN,
    ),
    Mutant(
        "sqlite: what fails among others is kept",
        SHARING,
        '            db.execute("ROLLBACK TO one")\n',
        "",
        ("tests/stores/sqlite/test_write_batching.py",),
    ),
    Mutant(
        "sqlite: who shared what was undone is not done again",
        SHARING,
        "            job.reset()\n",
        "            continue\n",
        ("tests/stores/sqlite/test_write_batching.py",),
    ),
    Mutant(
        "sqlite: a batch holds the loop up for as long as it takes",
        SHARING,
        "                if until is not None and time.perf_counter() > until:",
        "                if until is not None and time.perf_counter() > until + 1000:",
        ("tests/stores/sqlite/test_write_batching.py",),
    ),
    Mutant(
        "sqlite: a forked child writes what its parent waits for",
        WRITER,
        "        if os.getpid() != self._pid:",
        "        if not self._pid:",
        ("tests/stores/sqlite/test_write_batching.py",),
    ),
    Mutant(
        "sqlite: what was given up is written with the others",
        SHARING,
        "                if job.begin():",
        "                if job.begin() or True:",
        ("tests/stores/sqlite/test_write_batching.py",),
    ),
    Mutant(
        "time goes back with the clock of the machine",
        "ports/clock.py",
        "        if wall < steady and steady - wall <= self.MAX_AHEAD:",
        "        if wall < before and steady - wall <= 0:",
        ("tests/stores/sqlite/test_clock.py",),
    ),
    Mutant(
        "a clock that was a year ahead stays there",
        "ports/clock.py",
        "        if wall < steady and steady - wall <= self.MAX_AHEAD:",
        "        if wall < steady:",
        ("tests/stores/sqlite/test_clock.py",),
    ),
    Mutant(
        "a process does not hear what time it was for others",
        "stores/sqlite/claims.py",
        "            self.clock.heard(last_time(db))",
        "            pass",
        ("tests/stores/sqlite/test_clock.py",),
    ),
    Mutant(
        "a file that was truncated takes commits",
        "stores/sqlite/writer.py",
        "        if found.st_size < self._size:",
        "        if found.st_size < 0:",
        ("tests/stores/sqlite/test_driver_errors.py",),
    ),
    Mutant(
        "an empty file beside a log becomes a new store",
        "stores/sqlite/database.py",
        "        check_leftover_log(self.path)\n",
        "",
        ("tests/stores/sqlite/test_driver_errors.py",),
    ),
]
