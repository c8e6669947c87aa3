"""The PostgreSQL store, broken: mostly its functions. Needs a server, which `./dev mutants` starts.

Each test process has a schema that is named after the text of all tables and functions, so that
mutants of them never meet.
"""

from __future__ import annotations

from outlast.testkit.mutation import Mutant

FOLDER = "stores/postgres/functions"
COMMIT = f"{FOLDER}/commit.sql"
CLAIMS = f"{FOLDER}/claim_runs.sql"
OWNERS = f"{FOLDER}/owner_gone.sql"
KIT = "tests/stores/postgres/test_conformance.py::TestPostgresStore"
STEPS = "tests/stores/postgres/test_step_connections.py"
LOCKED = ("tests/stores/postgres/test_faults.py", "-k", "stalls_nobody")


def _kit(words: str) -> tuple[str, ...]:
    """Those tests of the kit that are about it: all of them would take a minute."""
    return (KIT, "-k", words)


MUTANTS = [
    Mutant(
        "a connection that is being made is given up with its caller",
        "stores/postgres/connection.py",
        "        if self._connecting is None and not self.is_closing:",
        "        if False:",
        ("tests/stores/postgres/test_connections.py", "-k", "slow_to_connect"),
    ),
    Mutant(
        "postgres: a cancellation that psycopg swallows is lost",
        "stores/postgres/connection.py",
        "    if task is not None and task.cancelling() > before:",
        "    if False:",
        ("tests/stores/postgres/test_connections.py", "-k", "swallows"),
    ),
    Mutant(
        "postgres: a server that is too old is opened",
        "stores/postgres/schema.py",
        "    if number < MIN_VERSION:",
        "    if number < 0:",
        ("tests/stores/test_old_servers.py",),
    ),
    Mutant(
        "postgres: the fence is dropped",
        COMMIT,
        "                 AND u.token IS DISTINCT FROM coalesce(h.token, 0) THEN 'fenced'",
        "                 AND false THEN 'fenced'",
        _kit("superseded or token"),
    ),
    Mutant(
        "postgres: a commit for another life is taken",
        COMMIT,
        "            WHEN u.uid IS NOT NULL AND u.uid <> coalesce(h.uid, u.new_uid) THEN 'fenced'",
        "            WHEN false THEN 'fenced'",
        _kit("life"),
    ),
    Mutant(
        "postgres: runs are not locked before it is decided",
        COMMIT,
        "            FROM @runs AS a WHERE a.id = u.run FOR UPDATE SKIP LOCKED\n",
        "            FROM @runs AS a WHERE a.id = u.run\n",
        LOCKED,
    ),
    Mutant(
        "postgres: a batch waits for locks, in any order",
        COMMIT,
        "            FROM @runs AS a WHERE a.id = u.run FOR UPDATE SKIP LOCKED\n",
        "            FROM @runs AS a WHERE a.id = u.run FOR UPDATE\n",
        LOCKED,
    ),
    Mutant(
        "postgres: a name that is free is not locked",
        COMMIT,
        "            WHEN h.key IS NULL AND u.n <= most_names AND NOT pg_try_advisory_xact_lock(\n"
        "                hashtextextended(u.run, '@runs'::regclass::oid::bigint)\n"
        "            ) THEN 'busy'\n",
        "",
        LOCKED,
    ),
    Mutant(
        "postgres: each run that begins takes a lock",
        COMMIT,
        "    most_names constant int := 64;\n",
        "    most_names constant int := 100000;\n",
        ("tests/stores/postgres/test_batches.py", "-k", "few_places"),
    ),
    Mutant(
        "postgres: a name that is taken meanwhile fails the whole batch",
        COMMIT,
        "                IF atomic THEN\n                    RAISE lock_not_available",
        "                IF true THEN\n                    RAISE lock_not_available",
        ("tests/stores/postgres/test_batches.py", "-k", "own_commit_only"),
    ),
    Mutant(
        "postgres: an atomic batch is written but for a name that is taken meanwhile",
        COMMIT,
        "                IF atomic THEN\n                    RAISE lock_not_available",
        "                IF false THEN\n                    RAISE lock_not_available",
        ("tests/stores/postgres/test_batches.py", "-k", "refuses_an_atomic_batch"),
    ),
    Mutant(
        "postgres: runs are begun in any order",
        COMMIT,
        "                ORDER BY b.run  --",
        "                --",
        ("tests/stores/postgres/test_batches.py", "-k", "lock_each_other_out"),
    ),
    Mutant(
        "postgres: a refusal is decided after the events are written",
        COMMIT,
        "            keys[i] := 0;\n",
        "",
        _kit("refused or duplicate or conflict"),
    ),
    Mutant(
        "postgres: a duplicate event is swallowed",
        COMMIT,
        "            verdicts[x.life] := 'duplicate';",
        "            verdicts[x.life] := 'again';",
        _kit("duplicate"),
    ),
    Mutant(
        "postgres: nobody looks for duplicates before writing",
        COMMIT,
        "        WHERE u.life <= cardinality(c_run) AND c_flags[u.life] & 5 <> 5\n",
        "        WHERE false\n",
        _kit("duplicate"),
    ),
    Mutant(
        "postgres: another expected sequence is no conflict",
        COMMIT,
        "            WHEN u.expected <> coalesce(h.sequence, 0) THEN 'conflict'\n",
        "",
        _kit("expected or conflict"),
    ),
    Mutant(
        "postgres: a commit made again is written again",
        COMMIT,
        "            WHEN h.commit_id = u.id THEN 'again'\n",
        "",
        _kit("again"),
    ),
    Mutant(
        "postgres: an atomic batch is written in part",
        COMMIT,
        "    IF atomic AND array_remove(",
        "    IF NOT atomic AND array_remove(",
        _kit("atomic"),
    ),
    Mutant(
        "postgres: parking loses a wake-up",
        COMMIT,
        "                WHEN w.unseen THEN now\n",
        "",
        _kit("unseen or awake"),
    ),
    Mutant(
        "postgres: a lease that ran out is found only in workflows that have free runs",
        CLAIMS,
        "        SELECT array_agg(s.workflow) INTO searched FROM workflow_list AS s WHERE s.workflow IS NOT NULL;\n",
        "        SELECT array_agg(s.workflow) INTO workflows FROM workflow_list AS s WHERE s.workflow IS NOT NULL;\n"
        "        searched := workflows;\n",
        _kit("beside_free_runs"),
    ),
    Mutant(
        "postgres: a live claim is taken over",
        CLAIMS,
        "              AND (r.owner IS NULL OR r.claimed_until IS NULL OR r.claimed_until <= now)\n"
        "              AND (run_ids",
        "              AND (run_ids",
        _kit("claimed_twice"),
    ),
    Mutant(
        "postgres: who lives is called gone",
        OWNERS,
        "        AND @is_owner_unlocked(a_owner);\n",
        "        AND true;\n",
        ("tests/stores/postgres/test_liveness.py", "-k", "lives"),
    ),
    Mutant(
        "postgres: the session of a step is given back as it is",
        "stores/postgres/connection.py",
        '        return "DISCARD ALL"\n',
        '        return ""\n',
        (STEPS, "-k", "ends_with_the_step"),
    ),
    Mutant(
        "postgres: codecs of a step are left to the next one",
        "stores/postgres/connection.py",
        "            if not connection.is_closed() and connection.has_codecs():\n",
        "            if False:\n",
        (STEPS, "-k", "codecs"),
    ),
    Mutant(
        "postgres: a connection that cannot be reset fails its step",
        "stores/postgres/connection.py",
        "        except Exception as error:  # noqa: BLE001 - of a connection that is not used again\n",
        "        except ArithmeticError as error:\n",
        (STEPS, "-k", "cannot_be_reset"),
    ),
    Mutant(
        "postgres: the outcome of a step is recorded in the role of the step",
        "stores/postgres/statements/server.sql",
        "SET CONSTRAINTS ALL IMMEDIATE; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL;\n\n",
        "SET CONSTRAINTS ALL IMMEDIATE;\n\n",
        (STEPS, "-k", "own_user"),
    ),
    Mutant(
        "postgres: behind a pooler a step leaves its settings to other clients",
        "stores/postgres/database.py",
        '        return "end_pooled_step" if self._is_pooled else "end_step"\n',
        '        return "check_constraints"\n',
        (STEPS, "-k", "behind_a_pooler_state"),
    ),
    Mutant(
        "postgres: steps take the connections of commits",
        "stores/postgres/database.py",
        "            self._steps = StepPool(await self._pool(self._step_size, kind))\n",
        "            self._steps = self._main\n",
        (STEPS, "-k", "holds_up_no_other_run"),
    ),
    Mutant(
        "postgres: steps hold the whole pool of the user",
        "stores/postgres/connection.py",
        "            half = self._pool.get_max_size() // 2\n",
        "            half = self._pool.get_max_size()\n",
        (STEPS, "-k", "half_of_a_pool"),
    ),
    Mutant(
        "postgres: a step that waits for a connection gives its run up",
        "engine/steps/transactions.py",
        '            _logger.warning("step %r waits for a transaction: %s", call.step.name, error)\n',
        "            raise error\n",
        (STEPS, "-k", "costs_no_attempt"),
    ),
    Mutant(
        "postgres: a forked child closes the connections of its parent",
        "stores/postgres/database.py",
        "        if self._is_inherited:\n            # A connection",
        "        if False:\n            # A connection",
        ("tests/unit/test_forks.py", "-k", "postgres"),
    ),
]
