-- What concerns a store as a whole: counts, workers, and what a move has to know of a run.

-- name: count_runs
SELECT workflow, status, sum(number)::bigint FROM @run_counts
GROUP BY workflow, status HAVING sum(number) > 0;

-- name: put_worker
WITH forgotten AS (DELETE FROM @workers WHERE until < $4)
INSERT INTO @workers (owner, started_at, seen_at, until, data) VALUES ($1, $2, $2, $3, $5)
ON CONFLICT (owner) DO UPDATE
SET seen_at = excluded.seen_at, until = excluded.until, data = excluded.data;

-- name: delete_worker
DELETE FROM @workers WHERE owner = $1 RETURNING 1;

-- name: load_workers
SELECT data, started_at, seen_at, until FROM @workers ORDER BY started_at, owner;

-- name: load_receipts
SELECT t.id FROM @runs AS r JOIN @receipts AS t ON t.run_key = r.key WHERE r.id = $1
ORDER BY t.number;

-- name: load_tasks_of_run
SELECT * FROM @tasks WHERE run_id = $1 AND run_id <> '' ORDER BY key;

-- name: load_dead_tasks_of_run
SELECT * FROM @dead_tasks WHERE run_id = $1 AND run_id <> '' ORDER BY key;

-- name: load_keys_of_run
SELECT scope, key, value FROM @keys WHERE run_id = $1 ORDER BY scope, key;

-- name: load_facts_of_root
SELECT hash FROM @facts WHERE root = $1 ORDER BY hash;

-- name: skip_tokens
SELECT @skip_tokens_1($1);
