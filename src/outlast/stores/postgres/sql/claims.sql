-- Who may advance a run.

-- name: claim_runs
SELECT * FROM @claim_runs_1($1, $2, $3, $4, $5, $6, $7);

-- name: renew
SELECT * FROM @renew_1($1, $2, $3, $4, $5, $6, $7, $8);

-- name: release
SELECT * FROM @release_1($1, $2, $3, $4, $5);

-- name: next_runnable_at
-- Free runs by workflow: a skip scan, two seeks a workflow. A run that somebody holds can be had
-- when its lease is over and its time has come.
WITH RECURSIVE shelf (workflow) AS (
    SELECT min(workflow) FROM @runs WHERE runnable_at IS NOT NULL AND owner IS NULL
    UNION ALL
    SELECT (
        SELECT min(workflow) FROM @runs
        WHERE runnable_at IS NOT NULL AND owner IS NULL AND workflow > shelf.workflow
    )
    FROM shelf
    WHERE shelf.workflow IS NOT NULL
)
SELECT least(
    (SELECT min((
         SELECT min(r.runnable_at) FROM @runs AS r
         WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL AND r.workflow = shelf.workflow
     ))
     FROM shelf WHERE shelf.workflow IS NOT NULL),
    (SELECT min(greatest(r.runnable_at, r.claimed_until)) FROM @runs AS r
     WHERE r.owner IS NOT NULL AND r.runnable_at IS NOT NULL)
);
