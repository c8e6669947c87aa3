"""The PostgreSQL store, broken: mostly its functions. Needs a server, which `./dev mutants` starts.

Each test process has a schema that is named after the text of all migrations, so that mutants of them
never meet.
"""

from __future__ import annotations

from outlast.testing.mutation import Mutant

FOLDER = "stores/postgres/migrations"
COMMIT = f"{FOLDER}/0003_commits.sql"
CLAIMS = f"{FOLDER}/0004_claims.sql"
OWNERS = f"{FOLDER}/0006_owners.sql"
KIT = "tests/postgres/test_conformance.py::TestPostgresStore"
LOCKED = ("tests/postgres/test_faults.py", "-k", "stalls_nobody")


def _kit(words: str) -> tuple[str, ...]:
    """Those tests of the kit that are about it: all of them would take a minute."""
    return (KIT, "-k", words)


MUTANTS = [
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
        "            WHEN u.uid IS NOT NULL AND u.uid <> coalesce(h.uid, u.born) THEN 'fenced'",
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
        ("tests/postgres/test_batches.py", "-k", "few_places"),
    ),
    Mutant(
        "postgres: a name that is taken meanwhile fails the whole batch",
        COMMIT,
        "                IF atomic THEN\n                    RAISE lock_not_available",
        "                IF true THEN\n                    RAISE lock_not_available",
        ("tests/postgres/test_batches.py", "-k", "own_commit_only"),
    ),
    Mutant(
        "postgres: an atomic batch is written but for a name that is taken meanwhile",
        COMMIT,
        "                IF atomic THEN\n                    RAISE lock_not_available",
        "                IF false THEN\n                    RAISE lock_not_available",
        ("tests/postgres/test_batches.py", "-k", "refuses_an_atomic_batch"),
    ),
    Mutant(
        "postgres: runs are begun in any order",
        COMMIT,
        "                ORDER BY b.run  --",
        "                --",
        ("tests/postgres/test_batches.py", "-k", "lock_each_other_out"),
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
        "        SELECT array_agg(s.workflow) INTO searched FROM shelf AS s WHERE s.workflow IS NOT NULL;\n",
        "        SELECT array_agg(s.workflow) INTO shelves FROM shelf AS s WHERE s.workflow IS NOT NULL;\n"
        "        searched := shelves;\n",
        _kit("beside_free_runs"),
    ),
    Mutant(
        "postgres: a live claim is taken over",
        CLAIMS,
        "              AND (r.owner IS NULL OR r.claimed_until IS NULL OR r.claimed_until <= now)\n"
        "            FOR UPDATE SKIP LOCKED\n",
        "            FOR UPDATE\n",
        _kit("claimed_twice"),
    ),
    Mutant(
        "postgres: who lives is called gone",
        OWNERS,
        "        AND pg_try_advisory_xact_lock(@owner_lock_1(a_owner));\nEND $$;\n\n-- Ends",
        "        AND true;\nEND $$;\n\n-- Ends",
        ("tests/postgres/test_owners.py", "-k", "lives"),
    ),
]
