-- The server, the schema version, notifications, and the end of a step's transaction.

-- name: describe_server
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
       pg_backend_pid(), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
       pg_is_in_recovery(), current_setting('server_version'),
       current_setting('default_transaction_isolation');

-- name: read_version
SELECT (SELECT max(version) FROM @migrations), f.release, f.hash
FROM (SELECT) AS one LEFT JOIN @installed_functions AS f ON true;

-- name: has_migrations
SELECT to_regclass('@migrations') IS NOT NULL;

-- name: has_schema
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1);

-- name: write_version
INSERT INTO @migrations (version) VALUES ($1);

-- name: record_functions
WITH replaced AS (DELETE FROM @installed_functions)
INSERT INTO @installed_functions (release, hash) VALUES ($1::int[], $2);

-- name: lock_migrations
-- Held until the end of the transaction, so that it works behind a pooler.
SELECT pg_advisory_xact_lock(hashtextextended('outlast migrations @migrations', 0));

-- name: notify
-- A wake-up may be lost: it does not wait for the disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2);

-- name: notify_with_commit
SELECT pg_notify($1, $2);

-- name: check_constraints
-- Deferred constraints are checked now: an error of the COMMIT itself would leave the outcome unknown.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: end_step
-- Also resets role and settings of the step before its outcome is recorded. Advisory locks are kept until
-- the COMMIT: a process that waits for one must see what the step has written.
SET CONSTRAINTS ALL IMMEDIATE; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL;

-- name: end_pooled_step
-- After the COMMIT the pooler gives the session to another client, so everything is reset before it.
SET CONSTRAINTS ALL IMMEDIATE; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL;
UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES;
