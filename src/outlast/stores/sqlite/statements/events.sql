-- Histories.

-- name: insert_events
-- The unique index on (run_key, id) is the check for duplicates: see commit.py.
INSERT INTO events (run_key, sequence, id, type, version, step_name, timestamp, token, metadata,
                    data, output)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: find_event
SELECT sequence FROM events WHERE run_key = ? AND id = ?;

-- name: load_history
SELECT sequence, id, type, version, step_name, timestamp, token, metadata, data, output
FROM events
WHERE run_key = (SELECT key FROM runs WHERE id = ?) AND sequence > ?
ORDER BY sequence
LIMIT ?;
