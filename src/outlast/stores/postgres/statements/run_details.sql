-- The contents of a run besides its events: timers, entries, activities, snapshot, facts, keys.

-- name: load_timers
SELECT r.id, t.id, t.fire_at, t.fired
FROM @runs AS r JOIN @timers AS t ON t.run_key = r.key
WHERE r.id = $1
ORDER BY t.fire_at, t.id;

-- name: find_due_timers
SELECT r.id, t.id, t.fire_at, t.fired
FROM @timers AS t JOIN @runs AS r ON r.key = t.run_key
WHERE NOT t.fired AND t.fire_at <= coalesce($3, @now($1, $2))
ORDER BY t.fire_at, r.id, t.id
LIMIT $4;

-- name: load_entries
SELECT e.timestamp, e.id, e.step_id, e.step_type, e.action, e.duration_ms, e.error, e.input,
       e.output
FROM @runs AS r JOIN @entries AS e ON e.run_key = r.key
WHERE r.id = $1
ORDER BY e.timestamp, e.key;

-- name: load_activities
SELECT a.id, r.id, a.name, a.status, a.attempt, a.started_at, a.ended_at, a.error, a.input,
       a.output
FROM @runs AS r JOIN @activities AS a ON a.run_key = r.key
WHERE r.id = $1
ORDER BY a.id;

-- name: find_activity
SELECT a.id, r.id, a.name, a.status, a.attempt, a.started_at, a.ended_at, a.error, a.input,
       a.output
FROM @activities AS a JOIN @runs AS r ON r.key = a.run_key
WHERE a.id = $1;

-- name: find_snapshot
SELECT envelope, saved_at FROM @snapshots WHERE run_id = $1;

-- name: drop_snapshot
DELETE FROM @snapshots WHERE run_id = $1 RETURNING 1;

-- name: find_snapshot_ids
SELECT run_id FROM @snapshots WHERE run_id > $1 ORDER BY run_id LIMIT $2;

-- name: find_fact
SELECT data FROM @facts WHERE root = $1 AND hash = $2;

-- name: put_fact
INSERT INTO @facts (root, hash, data) VALUES ('', $1, $2) ON CONFLICT DO NOTHING;

-- name: drop_fact
DELETE FROM @facts WHERE root = '' AND hash = $1 RETURNING 1;

-- name: recall_key
SELECT value FROM @keys WHERE scope = $1 AND key = $2;

-- name: remember_key
-- Returns a row if this call bound the key. If not, a concurrent binding is committed, but not visible to
-- this statement's snapshot: the caller reads again.
INSERT INTO @keys (scope, key, value, run_id) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
RETURNING value;
