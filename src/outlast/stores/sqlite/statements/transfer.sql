-- Contents of a run that only a transfer reads.

-- name: load_receipts
SELECT t.id FROM runs AS r JOIN receipts AS t ON t.run_key = r.key WHERE r.id = ? ORDER BY t.number;

-- name: load_tasks_of_run
SELECT key, queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt,
       metadata, enqueued_at, input, ready_at, token, owner, claimed_until, fair_key
FROM tasks
WHERE run_id = ?
ORDER BY key;

-- name: load_dead_tasks_of_run
SELECT queue, run_id, id, uid, kind, name, step, definition, priority, run_at, attempt, metadata,
       enqueued_at, input, reason, died_at, fair_key
FROM dead_tasks
WHERE run_id = ?
ORDER BY key;

-- name: load_keys_of_run
SELECT scope, key, value FROM keys WHERE run_id = ? ORDER BY scope, key;

-- name: load_facts_of_root
SELECT hash FROM facts WHERE root = ? ORDER BY hash;

-- name: skip_tokens
UPDATE counters SET token = ? WHERE token < ?;
