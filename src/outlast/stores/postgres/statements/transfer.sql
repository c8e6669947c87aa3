-- What a move to another store reads of a run, and the token counter that it advances.

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
SELECT @skip_tokens($1);
