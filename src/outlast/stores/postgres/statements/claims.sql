-- Claims on runs.

-- name: claim_runs
SELECT c.* FROM @lock_owners($9) AS l (done)
CROSS JOIN LATERAL @claim_runs($1, $2, $3, $4, CASE WHEN l.done THEN $5::int END, $6, $7, $8) AS c;

-- name: renew
SELECT r.* FROM @lock_owners($9) AS l (done)
CROSS JOIN LATERAL @renew($1, $2, CASE WHEN l.done THEN $3::bigint END, $4, $5, $6, $7, $8) AS r;

-- name: release
SELECT * FROM @release($1, $2, $3, $4, $5);

-- name: next_runnable_at
SELECT @next_runnable_at();
