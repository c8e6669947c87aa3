-- Contents of a run besides its events: timers, entries, activities, its snapshot, facts, keys.

-- name: insert_timers
INSERT INTO timers (run_key, id, fire_at, fired) VALUES (?, ?, ?, 0)
ON CONFLICT (run_key, id) DO NOTHING;

-- name: find_unfired_timer
SELECT id FROM timers WHERE run_key = ? AND id = ? AND fired = 0;

-- name: fire_timer
UPDATE timers SET fired = 1 WHERE run_key = ? AND id = ?;

-- name: load_timers
SELECT r.id, t.id, t.fire_at, t.fired
FROM runs AS r JOIN timers AS t ON t.run_key = r.key
WHERE r.id = ?
ORDER BY t.fire_at, t.id;

-- name: find_due_timers
-- CROSS JOIN keeps the order of the index on fire_at: only timers of the same microsecond are
-- sorted, and the limit stops the walk.
SELECT r.id, t.id, t.fire_at, t.fired
FROM timers AS t CROSS JOIN runs AS r ON r.key = t.run_key
WHERE t.fired = 0 AND t.fire_at <= ?
ORDER BY t.fire_at, r.id, t.id
LIMIT ?;

-- name: insert_entries
INSERT INTO entries (run_key, timestamp, id, step_id, step_type, action, duration_ms, error, input,
                     output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: load_entries
SELECT r.id, e.timestamp, e.id, e.step_id, e.step_type, e.action, e.duration_ms, e.error, e.input,
       e.output
FROM runs AS r JOIN entries AS e ON e.run_key = r.key
WHERE r.id = ?
ORDER BY e.timestamp, e.key;

-- name: save_activities
INSERT OR REPLACE INTO activities (id, run_key, name, status, attempt, started_at, ended_at, error,
                                   input, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: load_activities
SELECT a.id, r.id, a.name, a.status, a.attempt, a.started_at, a.ended_at, a.error, a.input,
       a.output
FROM runs AS r JOIN activities AS a ON a.run_key = r.key
WHERE r.id = ?
ORDER BY a.id;

-- name: find_activity
SELECT a.id, r.id, a.name, a.status, a.attempt, a.started_at, a.ended_at, a.error, a.input,
       a.output
FROM activities AS a JOIN runs AS r ON r.key = a.run_key
WHERE a.id = ?;

-- name: save_snapshot
INSERT OR REPLACE INTO snapshots (run_key, run_id, envelope) VALUES (?, ?, ?);

-- name: find_snapshot
SELECT envelope FROM snapshots WHERE run_id = ?;

-- name: has_snapshot
SELECT 1 FROM snapshots WHERE run_id = ?;

-- name: drop_snapshot
DELETE FROM snapshots WHERE run_id = ?;

-- name: find_snapshot_ids
SELECT run_id FROM snapshots WHERE run_id > ? ORDER BY run_id LIMIT ?;

-- name: save_facts
INSERT INTO facts (root, hash, data) VALUES (?, ?, ?)
ON CONFLICT (root, hash) DO UPDATE SET data = excluded.data;

-- name: find_fact
SELECT data FROM facts WHERE root = ? AND hash = ?;

-- name: has_fact
SELECT 1 FROM facts WHERE root = ? AND hash = ?;

-- name: drop_fact
DELETE FROM facts WHERE root = ? AND hash = ?;

-- name: recall_key
SELECT value FROM keys WHERE scope = ? AND key = ?;

-- name: remember_key
INSERT INTO keys (scope, key, value, run_id) VALUES (?, ?, ?, ?);
