-- Commits, records and histories. The order of columns is that of `rows.py`.

-- name: commit
SELECT * FROM @commit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                        $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31);

-- name: commit_when_free
-- `w.done` makes the commit depend on the locks, which are then taken first.
SELECT c.* FROM @lock_runs($32, $33) AS w (done) CROSS JOIN LATERAL @commit(
    $1, $2, $3 AND w.done IS NOT NULL, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
    $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31) AS c;

-- name: now
SELECT @now($1, $2);

-- name: find_runs
-- LATERAL with LIMIT forces one index search per run.
SELECT r.* FROM unnest($1::text[]) AS w (id) CROSS JOIN LATERAL (
    SELECT * FROM @records AS r WHERE r.id = w.id LIMIT 1
) AS r;

-- name: load_history
SELECT e.sequence, e.id, e.type, e.version, e.step_name, e.timestamp, e.token, e.metadata, e.data,
       e.output
FROM @events AS e
WHERE e.run_key = (SELECT key FROM @runs WHERE id = $1) AND e.sequence > $2
ORDER BY e.sequence
LIMIT $3;

-- name: load_histories
SELECT w.id, e.* FROM unnest($1::text[]) AS w (id) CROSS JOIN LATERAL (
    SELECT e.sequence, e.id, e.type, e.version, e.step_name, e.timestamp, e.token, e.metadata,
           e.data, e.output
    FROM @events AS e
    WHERE e.run_key = (SELECT key FROM @runs WHERE id = w.id)
    ORDER BY e.sequence
    LIMIT 1000000000
) AS e;

-- name: delete
SELECT gone, alive FROM @delete($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: expire
SELECT * FROM @expire($1, $2, $3);
