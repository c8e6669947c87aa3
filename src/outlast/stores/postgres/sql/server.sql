-- What kind of server this is, and how far our tables have come.

-- name: describe_server
SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
       pg_backend_pid(), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
       pg_is_in_recovery(), current_setting('server_version'),
       current_setting('default_transaction_isolation');

-- name: read_version
SELECT max(version) FROM @migrations;

-- name: has_migrations
SELECT to_regclass('@migrations') IS NOT NULL;

-- name: has_schema
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1);

-- name: write_version
INSERT INTO @migrations (version) VALUES ($1);

-- name: lock_migrations
-- For the transaction, and so also behind a pooler.
SELECT pg_advisory_xact_lock(hashtextextended('outlast migrations @migrations', 0));

-- name: notify
-- A wake-up is no loss: it does not wait for the disk.
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2);

-- name: notify_with_commit
SELECT pg_notify($1, $2);

-- name: check_constraints
-- Those that the user has deferred: an error of the COMMIT itself would leave it open what happened.
SET CONSTRAINTS ALL IMMEDIATE;

-- name: end_step
-- The same, and then the outcome is recorded by our own user and with no timeout of the step's.
-- Advisory locks are kept until the COMMIT is done: whoever waits for one must see what was written.
SET CONSTRAINTS ALL IMMEDIATE; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL;

-- name: end_pooled_step
-- The session is another client's after the COMMIT, so all that can be reset is reset before it.
SET CONSTRAINTS ALL IMMEDIATE; RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL;
UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES;
