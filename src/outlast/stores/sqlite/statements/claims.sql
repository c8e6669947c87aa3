-- Claims on runs.

-- name: find_runnable_workflows
-- The workflows that have free runs with a time to become runnable, and the earliest of these
-- times. SQLite has no skip scan without statistics; the recursion is one: two seeks a workflow.
WITH RECURSIVE shelf (workflow) AS (
    SELECT min(workflow) FROM runs WHERE runnable_at IS NOT NULL AND owner IS NULL
    UNION ALL
    SELECT (
        SELECT min(workflow) FROM runs
        WHERE runnable_at IS NOT NULL AND owner IS NULL AND workflow > shelf.workflow
    )
    FROM shelf
    WHERE shelf.workflow IS NOT NULL
)
SELECT shelf.workflow,
       (SELECT min(runnable_at) FROM runs
        WHERE runnable_at IS NOT NULL AND owner IS NULL AND workflow = shelf.workflow)
FROM shelf
WHERE shelf.workflow IS NOT NULL;

-- name: find_runnable
SELECT runnable_at, id, key
FROM runs
WHERE workflow = :workflow AND runnable_at IS NOT NULL AND runnable_at <= :now AND owner IS NULL
  AND status NOT IN ('completed', 'failed', 'cancelled')
  AND (:code IS NULL OR wait_kind IN ('mismatch', 'bug') OR NOT EXISTS (
      SELECT 1 FROM run_values AS v WHERE v.key = runs.key AND instr(v.rejected_by, :code)
  ))
ORDER BY runnable_at, id
LIMIT :limit;

-- name: find_expired_claims
-- Runs whose lease has expired. They keep their owner until the next claim: until then the old owner
-- may still write. The caller filters by workflow and by `runnable_at`.
SELECT runnable_at, id, key, workflow
FROM runs
WHERE owner IS NOT NULL AND claimed_until <= :now AND runnable_at <= :now
  AND status NOT IN ('completed', 'failed', 'cancelled')
  AND (:code IS NULL OR wait_kind IN ('mismatch', 'bug') OR NOT EXISTS (
      SELECT 1 FROM run_values AS v WHERE v.key = runs.key AND instr(v.rejected_by, :code)
  ));

-- name: find_claimable
SELECT runnable_at, id, key, workflow
FROM runs
WHERE id = :id AND status NOT IN ('completed', 'failed', 'cancelled')
  AND (owner IS NULL OR claimed_until IS NULL OR claimed_until <= :now);

-- name: claim_runs
UPDATE runs SET owner = ?, token = ?, claimed_until = ? WHERE key = ?;

-- name: renew_runs
UPDATE runs SET claimed_until = ? WHERE key = ?;

-- name: release_runs
UPDATE runs SET owner = NULL, claimed_until = NULL WHERE key = ?;

-- name: find_next_takeover
-- A claimed run is available when its lease has expired and its time has come. The first
-- lease that ends late enough for its run is an upper bound: later leases cannot be better, so the
-- walk along the index ends there, most often at its first row.
SELECT min(max(runnable_at, claimed_until))
FROM runs
WHERE owner IS NOT NULL AND runnable_at IS NOT NULL
  AND claimed_until <= coalesce(
      (SELECT claimed_until FROM runs
       WHERE owner IS NOT NULL AND runnable_at <= claimed_until
       ORDER BY claimed_until
       LIMIT 1),
      9223372036854775807
  );
