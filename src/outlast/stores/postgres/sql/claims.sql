-- Who may advance a run.

-- name: claim_runs
SELECT c.* FROM @live_1($9) AS l (done)
CROSS JOIN LATERAL @claim_runs_1($1, $2, $3, $4, CASE WHEN l.done THEN $5::int END, $6, $7, $8) AS c;

-- name: renew
SELECT r.* FROM @live_1($9) AS l (done)
CROSS JOIN LATERAL @renew_1($1, $2, CASE WHEN l.done THEN $3::bigint END, $4, $5, $6, $7, $8) AS r;

-- name: release
SELECT * FROM @release_1($1, $2, $3, $4, $5);

-- name: next_runnable_at
SELECT @next_runnable_at_1();
