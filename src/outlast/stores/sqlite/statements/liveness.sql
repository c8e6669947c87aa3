-- Owners whose process is alive.

-- name: load_owners
SELECT owner, nonce, boot, device, inode, gone_at FROM owners;

-- name: put_owner
INSERT OR REPLACE INTO owners (owner, nonce, boot, device, inode) VALUES (?, ?, ?, ?, ?);

-- name: mark_gone
UPDATE owners SET gone_at = ? WHERE owner = ? AND nonce = ?;

-- name: forget_owners
DELETE FROM owners WHERE gone_at < ?;

-- name: delete_owner
DELETE FROM owners WHERE owner = ? AND nonce = ?;

-- name: forget_deaths
-- Of runs that have committed since, or ended.
DELETE FROM deaths
WHERE NOT EXISTS (
    SELECT 1 FROM runs
    WHERE runs.key = deaths.key AND runs.revision = deaths.revision AND ended_at IS NULL
);

-- name: end_run_leases
UPDATE runs SET claimed_until = :now
WHERE owner IS NOT NULL AND claimed_until > :now AND owner = :owner
  AND key NOT IN (SELECT key FROM deaths);

-- name: record_deaths
INSERT INTO deaths (key, revision, times)
SELECT key, revision, 1 FROM runs WHERE owner IS NOT NULL AND owner = :owner AND ended_at IS NULL
ON CONFLICT (key) DO UPDATE SET times = times + 1;

-- name: find_suspects
SELECT deaths.key FROM deaths JOIN runs USING (key)
WHERE times > 1 AND runs.revision = deaths.revision AND deaths.key IN (SELECT value FROM json_each(?));

-- name: end_task_leases
-- The queue counts deliveries, so that a task which kills its owners ends in the dead letters.
UPDATE tasks SET claimed_until = :now
WHERE owner IS NOT NULL AND claimed_until > :now AND owner = :owner AND attempt <= 1;
