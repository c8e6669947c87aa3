-- Searches for runs. Each query walks one index from the newest on and stops at the limit; a search that
-- spans several (workflow, status) files merges their newest in Python, because SQL without
-- LATERAL cannot limit each file by itself.

-- name: find_files
WITH RECURSIVE named (workflow) AS (
    SELECT min(workflow) FROM runs
    UNION ALL
    SELECT (SELECT min(workflow) FROM runs WHERE workflow > named.workflow)
    FROM named
    WHERE named.workflow IS NOT NULL
)
SELECT workflow FROM named WHERE workflow IS NOT NULL;

-- name: find_newest
SELECT created_at, id, key, workflow, status, parent
FROM runs
WHERE (created_at, id) < (:moment, :id)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- name: find_oldest
SELECT created_at, id, key, workflow, status, parent
FROM runs
WHERE (created_at, id) > (:moment, :id)
ORDER BY created_at, id
LIMIT :limit;

-- name: find_latest_at_rest
-- Runs are indexed by their last change only while they have no owner: an owner changes its run all the
-- time, and would pay for the index. Owned runs are few, and scanned.
SELECT updated_at, id, key, workflow, status, parent
FROM runs
WHERE owner IS NULL AND (updated_at, id) < (:moment, :id)
ORDER BY updated_at DESC, id DESC
LIMIT :limit;

-- name: find_latest_held
SELECT updated_at, id, key, workflow, status, parent
FROM runs INDEXED BY runs_held
WHERE owner IS NOT NULL AND (updated_at, id) < (:moment, :id)
ORDER BY updated_at DESC, id DESC
LIMIT :limit;

-- name: find_stalest_at_rest
SELECT updated_at, id, key, workflow, status, parent
FROM runs
WHERE owner IS NULL AND (updated_at, id) > (:moment, :id)
ORDER BY updated_at, id
LIMIT :limit;

-- name: find_stalest_held
SELECT updated_at, id, key, workflow, status, parent
FROM runs INDEXED BY runs_held
WHERE owner IS NOT NULL AND (updated_at, id) > (:moment, :id)
ORDER BY updated_at, id
LIMIT :limit;

-- name: find_filed
SELECT created_at, id, key, workflow, status, parent
FROM runs
WHERE workflow = :workflow AND status = :status AND (created_at, id) < (:moment, :id)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- name: find_children
SELECT created_at, id, key, workflow, status, parent
FROM runs
WHERE parent = :parent AND (created_at, id) < (:moment, :id)
ORDER BY created_at DESC, id DESC
LIMIT :limit;

-- name: find_attributed
-- CROSS JOIN keeps the order of the index: only runs of the same microsecond are sorted.
SELECT r.created_at, r.id, r.key, r.workflow, r.status, r.parent
FROM attributes AS a CROSS JOIN runs AS r ON r.key = a.run_key
WHERE a.name = :name AND a.value = :value AND a.created_at <= :moment
  AND (r.created_at, r.id) < (:moment, :id)
ORDER BY a.created_at DESC, r.id DESC
LIMIT :limit;

-- name: has_attribute
SELECT 1 FROM attributes WHERE run_key = ? AND name = ? AND value = ?;

-- name: count_runs
SELECT workflow, status, number FROM run_counts WHERE number > 0;

-- name: add_counts
INSERT INTO run_counts (workflow, status, number) VALUES (?, ?, ?)
ON CONFLICT (workflow, status) DO UPDATE SET number = number + excluded.number;
