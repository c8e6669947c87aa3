-- Tasks: enqueue, take under a lease, settle, redrive.

-- name: enqueue
SELECT @enqueue($1, $2, $3, $4, $5);

-- name: take_many
SELECT * FROM @take_many($1, $2, $3, $4, $5, $6, $7);

-- name: claim_task
SELECT * FROM @claim_task($1, $2, $3, $4, $5, $6);

-- name: settle_delivery
SELECT * FROM @settle_delivery($1, $2, $3, $4, $5, $6, $7, $8);

-- name: redrive
SELECT @redrive($1, $2, $3, $4);

-- name: purge
WITH gone AS (
    DELETE FROM @dead_tasks WHERE queue = $1 AND ($2::text[] IS NULL OR id = ANY ($2)) RETURNING 1
)
SELECT count(*) FROM gone;

-- name: count_ready
SELECT (SELECT count(*) FROM @tasks WHERE owner IS NULL AND queue = $3 AND ready_at <= t.now)
     + (SELECT count(*) FROM @tasks
        WHERE owner IS NOT NULL AND queue = $3 AND claimed_until <= t.now AND ready_at <= t.now)
FROM (SELECT @now($1, $2) AS now OFFSET 0) AS t;

-- name: find_queues
-- Queues with a task in any state: a skip scan of each index.
WITH RECURSIVE free (queue) AS (
    SELECT min(t.queue) FROM @tasks AS t WHERE t.owner IS NULL
    UNION ALL
    SELECT (SELECT min(t.queue) FROM @tasks AS t WHERE t.owner IS NULL AND t.queue > free.queue)
    FROM free WHERE free.queue IS NOT NULL
), held (queue) AS (
    SELECT min(t.queue) FROM @tasks AS t WHERE t.owner IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.queue) FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue > held.queue)
    FROM held WHERE held.queue IS NOT NULL
), dead (queue) AS (
    SELECT min(t.queue) FROM @dead_tasks AS t
    UNION ALL
    SELECT (SELECT min(t.queue) FROM @dead_tasks AS t WHERE t.queue > dead.queue)
    FROM dead WHERE dead.queue IS NOT NULL
)
SELECT queue FROM free WHERE queue IS NOT NULL
UNION SELECT queue FROM held WHERE queue IS NOT NULL
UNION SELECT queue FROM dead WHERE queue IS NOT NULL;

-- name: find_available_tasks
SELECT * FROM @find_available_tasks($1, $2, $3, $4);

-- name: load_dead_tasks
SELECT * FROM @dead_tasks WHERE queue = $1 ORDER BY died_at, id, key LIMIT $2;
