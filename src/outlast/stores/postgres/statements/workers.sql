-- Heartbeats of workers.

-- name: put_worker
WITH expired AS (DELETE FROM @workers WHERE until < $4)
INSERT INTO @workers (owner, started_at, seen_at, until, data) VALUES ($1, $2, $2, $3, $5)
ON CONFLICT (owner) DO UPDATE
SET seen_at = excluded.seen_at, until = excluded.until, data = excluded.data;

-- name: delete_worker
DELETE FROM @workers WHERE owner = $1 RETURNING 1;

-- name: load_workers
SELECT data, started_at, seen_at, until FROM @workers ORDER BY started_at, owner;
