-- Who may advance a run.

-- name: claim_runs
SELECT * FROM @claim_runs_1($1, $2, $3, $4, $5, $6, $7, $8);

-- name: renew
SELECT * FROM @renew_1($1, $2, $3, $4, $5, $6, $7, $8);

-- name: release
SELECT * FROM @release_1($1, $2, $3, $4, $5);

-- name: next_runnable_at
SELECT @next_runnable_at_1();
