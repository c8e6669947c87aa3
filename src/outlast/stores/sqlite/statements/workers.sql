-- Heartbeats of workers.

-- name: put_worker
INSERT INTO workers (owner, started_at, seen_at, until, data)
VALUES (:owner, :now, :now, :until, :data)
ON CONFLICT (owner) DO UPDATE
SET seen_at = excluded.seen_at, until = excluded.until, data = excluded.data;

-- name: forget_workers
DELETE FROM workers WHERE until < ?;

-- name: delete_worker
DELETE FROM workers WHERE owner = ?;

-- name: find_worker
SELECT 1 FROM workers WHERE owner = ?;

-- name: load_workers
SELECT data, started_at, seen_at, until FROM workers ORDER BY started_at, owner;
