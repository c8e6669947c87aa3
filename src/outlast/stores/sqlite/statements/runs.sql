-- Records of runs. A row of `runs` is read and written whole; `rows.RunRow` has the same order.

-- name: load_run
SELECT key, id, uid, workflow, parent, status, wait_kind, current_step, runnable_at, owner, token,
       claimed_until, sequence, revision, commit_id, inbox, created_at, updated_at, ended_at
FROM runs
WHERE id = ?;

-- name: load_runs
-- json_each: one statement whatever the number of ids. It cuts text at a NUL, so it is given only
-- ids that have been checked.
SELECT key, id, uid, workflow, parent, status, wait_kind, current_step, runnable_at, owner, token,
       claimed_until, sequence, revision, commit_id, inbox, created_at, updated_at, ended_at
FROM runs
WHERE id IN (SELECT value FROM json_each(?));

-- name: find_run
SELECT r.*, d.version, d.definition, d.queue, d.priority, d.attributes, d.input,
       v.error, v.recover_to, v.rejected_by, v.ctx, v.result, v.halt_data
FROM runs AS r
LEFT JOIN run_details AS d ON d.key = r.key
LEFT JOIN run_values AS v ON v.key = r.key
WHERE r.id = ?;

-- name: find_runs_by_key
SELECT r.*, d.version, d.definition, d.queue, d.priority, d.attributes, d.input,
       v.error, v.recover_to, v.rejected_by, v.ctx, v.result, v.halt_data
FROM runs AS r
LEFT JOIN run_details AS d ON d.key = r.key
LEFT JOIN run_values AS v ON v.key = r.key
WHERE r.key IN (SELECT value FROM json_each(?));

-- name: insert_runs
INSERT INTO runs (key, id, uid, workflow, parent, status, wait_kind, current_step, runnable_at,
                  owner, token, claimed_until, sequence, revision, commit_id, inbox, created_at,
                  updated_at, ended_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: advance_runs
-- The columns that no index has: SQLite touches an index when one of its columns is named here,
-- changed or not.
UPDATE runs
SET wait_kind = ?, current_step = ?, token = ?, sequence = ?, revision = ?, commit_id = ?,
    inbox = ?, updated_at = ?
WHERE key = ?;

-- name: update_runs
UPDATE runs
SET workflow = ?, status = ?, runnable_at = ?, owner = ?, claimed_until = ?, ended_at = ?,
    wait_kind = ?, current_step = ?, token = ?, sequence = ?, revision = ?, commit_id = ?,
    inbox = ?, updated_at = ?
WHERE key = ?;

-- name: insert_details
INSERT INTO run_details (key, version, definition, queue, priority, attributes, input)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: insert_values
INSERT INTO run_values (key, error, recover_to, rejected_by, ctx, result, halt_data)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- One statement per field, because a change names the fields that it sets and no others.

-- name: set_version
INSERT INTO run_details (key, version) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET version = excluded.version;

-- name: set_definition
INSERT INTO run_details (key, definition) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET definition = excluded.definition;

-- name: set_queue
INSERT INTO run_details (key, queue) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET queue = excluded.queue;

-- name: set_priority
INSERT INTO run_details (key, priority) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET priority = excluded.priority;

-- name: set_attributes
INSERT INTO run_details (key, attributes) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET attributes = excluded.attributes;

-- name: set_input
INSERT INTO run_details (key, input) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET input = excluded.input;

-- name: set_error
INSERT INTO run_values (key, error) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET error = excluded.error;

-- name: set_recover_to
INSERT INTO run_values (key, recover_to) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET recover_to = excluded.recover_to;

-- name: set_rejected_by
INSERT INTO run_values (key, rejected_by) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET rejected_by = excluded.rejected_by;

-- name: set_ctx
INSERT INTO run_values (key, ctx) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET ctx = excluded.ctx;

-- name: set_result
INSERT INTO run_values (key, result) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET result = excluded.result;

-- name: set_halt_data
INSERT INTO run_values (key, halt_data) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET halt_data = excluded.halt_data;

-- name: insert_attributes
INSERT INTO attributes (run_key, name, value, created_at) VALUES (?, ?, ?, ?);

-- name: delete_attributes
DELETE FROM attributes WHERE run_key = ?;

-- name: read_counters
SELECT token, run_key FROM counters;

-- name: write_counters
UPDATE counters SET token = ?, run_key = ?;

-- name: read_clock
SELECT clock FROM counters;

-- name: write_clock
UPDATE counters SET clock = ?;

-- name: end_impossible_claims
-- No lease is that long: the clock that gave it was far ahead.
UPDATE runs SET claimed_until = :now WHERE owner IS NOT NULL AND claimed_until > :longest;

-- name: end_impossible_task_claims
UPDATE tasks SET claimed_until = :now WHERE claimed_until > :longest;

-- name: take_lock
-- Takes the writer's lock in a transaction of the user's, before anything is read.
UPDATE counters SET token = token;
