-- Tasks, handed out under a lease. `rows.TaskRow` has the same order of columns.

-- name: insert_tasks
INSERT INTO tasks (queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt,
                   metadata, enqueued_at, input, ready_at, fair_key, token)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)
ON CONFLICT (run_id, id, queue) DO NOTHING;

-- name: count_changes
-- Rows that this connection has written so far: the difference is how many were new.
SELECT total_changes();

-- name: find_task
SELECT key, queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt,
       metadata, enqueued_at, input, ready_at, token, owner, claimed_until,
       fair_key
FROM tasks
WHERE run_id = ? AND id = ? AND queue = ?;

-- name: load_task
SELECT key, queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt,
       metadata, enqueued_at, input, ready_at, token, owner, claimed_until,
       fair_key
FROM tasks
WHERE key = ?;

-- name: find_available_task_of_run
SELECT key, queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt,
       metadata, enqueued_at, input, ready_at, token, owner, claimed_until,
       fair_key
FROM tasks
WHERE run_id = :run_id AND id = :id AND ready_at <= :now
  AND (owner IS NULL OR claimed_until <= :now)
ORDER BY key
LIMIT 1;

-- name: find_level
-- The smallest priority from a given one on that has free tasks: with it a search skips what is
-- delayed, instead of walking past it.
SELECT min(priority) FROM tasks
WHERE owner IS NULL AND fair_key = '' AND queue = :queue AND priority >= :priority;

-- name: find_queues
-- The queues that have tasks, free or held, by the same recursion as find_runnable_workflows.
WITH RECURSIVE free (queue) AS (
    SELECT min(queue) FROM tasks WHERE owner IS NULL AND fair_key = ''
    UNION ALL
    SELECT (SELECT min(queue) FROM tasks
            WHERE owner IS NULL AND fair_key = '' AND queue > free.queue)
    FROM free
    WHERE free.queue IS NOT NULL
), keyed (queue) AS (
    SELECT min(queue) FROM fair_keys WHERE queue > ''
    UNION ALL
    SELECT (SELECT min(queue) FROM fair_keys WHERE queue > keyed.queue)
    FROM keyed
    WHERE keyed.queue IS NOT NULL
), held (queue) AS (
    SELECT min(queue) FROM tasks WHERE owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(queue) FROM tasks WHERE owner IS NOT NULL AND queue > held.queue)
    FROM held
    WHERE held.queue IS NOT NULL
)
SELECT queue FROM free WHERE queue IS NOT NULL
UNION
SELECT queue FROM keyed WHERE queue IS NOT NULL
UNION
SELECT queue FROM held WHERE queue IS NOT NULL;

-- name: find_dead_queues
WITH RECURSIVE dead (queue) AS (
    SELECT min(queue) FROM dead_tasks
    UNION ALL
    SELECT (SELECT min(queue) FROM dead_tasks WHERE queue > dead.queue)
    FROM dead
    WHERE dead.queue IS NOT NULL
)
SELECT queue FROM dead WHERE queue IS NOT NULL;

-- name: find_ready
SELECT priority, ready_at, key
FROM tasks
WHERE owner IS NULL AND fair_key = '' AND queue = :queue AND priority = :priority AND ready_at <= :now
ORDER BY ready_at, key
LIMIT :limit;

-- name: find_keyed_task
-- The first tasks of each fair key: to list tasks, not to hand them out.
SELECT t.priority, t.ready_at, t.key
FROM fair_keys AS l, tasks AS t
WHERE l.queue = :queue AND l.fair_key <> '' AND t.fair_key <> '' AND t.key IN (
    SELECT f.key FROM tasks AS f
    WHERE f.owner IS NULL AND f.fair_key <> '' AND f.queue = :queue AND f.fair_key = l.fair_key
      AND f.ready_at <= :now
    ORDER BY f.priority, f.ready_at, f.key LIMIT :limit)
UNION ALL
SELECT t.priority, t.ready_at, t.key
FROM tasks AS t
WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.queue = :queue AND t.claimed_until <= :now
  AND t.ready_at <= :now;

-- name: has_awake_fair_key
SELECT EXISTS (SELECT 1 FROM fair_keys WHERE queue = :queue AND wake_at IS NULL AND fair_key <> '')
    OR EXISTS (SELECT 1 FROM fair_keys WHERE queue = :queue AND wake_at <= :now);

-- name: find_expired_tasks
-- Tasks with an expired lease are ready again, in their old place in the order. They keep owner and
-- token until the next claim: until then the old owner may still finish them.
SELECT priority, ready_at, key
FROM tasks
WHERE owner IS NOT NULL AND fair_key = '' AND queue = :queue AND claimed_until <= :now
  AND ready_at <= :now
ORDER BY priority, ready_at, key
LIMIT :limit;

-- name: count_ready
SELECT (SELECT count(*) FROM tasks
        WHERE owner IS NULL AND fair_key = '' AND queue = :queue AND ready_at <= :now)
     + (SELECT count(*) FROM tasks
        WHERE owner IS NULL AND fair_key <> '' AND queue = :queue AND ready_at <= :now)
     + (SELECT count(*) FROM tasks
        WHERE owner IS NOT NULL AND queue = :queue AND claimed_until <= :now AND ready_at <= :now);

-- name: claim_task
UPDATE tasks SET owner = ?, token = ?, claimed_until = ?, attempt = ? WHERE key = ?;

-- name: renew_task
UPDATE tasks SET claimed_until = ? WHERE key = ?;

-- name: release_task
UPDATE tasks SET owner = NULL, claimed_until = NULL WHERE key = ?;

-- name: return_task
UPDATE tasks SET owner = NULL, claimed_until = NULL, ready_at = ? WHERE key = ?;

-- name: delete_task
DELETE FROM tasks WHERE key = ?;

-- name: finish_tasks
-- Their claims have been checked, in the same transaction.
DELETE FROM tasks WHERE run_id = ? AND id = ? AND queue = ?;

-- name: keep_tasks
UPDATE tasks SET claimed_until = NULL WHERE run_id = ? AND id = ? AND queue = ?;

-- name: drop_tasks
DELETE FROM tasks WHERE run_id = ? AND id = ?;

-- name: drop_dead_tasks
DELETE FROM dead_tasks WHERE run_id = ? AND id = ?;

-- name: bury_task
-- A task that dies a second time keeps its place in the order of redrive.
INSERT INTO dead_tasks (queue, run_id, id, uid, kind, name, step, definition, priority, run_at,
                        attempt, metadata, enqueued_at, input, fair_key, reason, died_at)
SELECT queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt, metadata,
       enqueued_at, input, fair_key, :reason, :now
FROM tasks
WHERE key = :key
ON CONFLICT (run_id, id, queue) DO UPDATE
SET uid = excluded.uid, kind = excluded.kind, name = excluded.name, step = excluded.step,
    definition = excluded.definition, priority = excluded.priority, run_at = excluded.run_at,
    attempt = excluded.attempt, metadata = excluded.metadata, enqueued_at = excluded.enqueued_at,
    input = excluded.input, fair_key = excluded.fair_key, reason = excluded.reason, died_at = excluded.died_at;

-- name: insert_dead_tasks
INSERT INTO dead_tasks (queue, run_id, id, uid, kind, name, step, definition, priority, run_at,
                        attempt, metadata, enqueued_at, input, reason, died_at, fair_key)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id, id, queue) DO NOTHING;

-- name: load_dead_tasks
SELECT queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt, metadata,
       enqueued_at, input, reason, died_at, fair_key
FROM dead_tasks
WHERE queue = ?
ORDER BY died_at, id, key
LIMIT ?;

-- name: find_dead_tasks
SELECT key, id FROM dead_tasks WHERE queue = ? ORDER BY key;

-- name: redrive_task
INSERT INTO tasks (queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt,
                   metadata, enqueued_at, input, ready_at, fair_key, token)
SELECT queue, run_id, id, uid, kind, name, step, definition, priority, run_at, 0, metadata,
       enqueued_at, input, :now, fair_key, 0
FROM dead_tasks
WHERE key = :key
ON CONFLICT (run_id, id, queue) DO NOTHING;

-- name: purge_task
DELETE FROM dead_tasks WHERE key = ?;
