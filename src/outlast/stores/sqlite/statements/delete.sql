-- Deletion of a run, in one transaction. A tree is its root and the ids that continue with
-- "~"; DEL follows "~" in every encoding, so a range over the unique index finds them.

-- name: find_tree
SELECT key, id, workflow, status FROM runs WHERE id = :id OR (id > :id || '~' AND id < :id || char(127));

-- name: find_open
-- Runs of a tree that have not ended, or are being moved.
SELECT id FROM runs
WHERE (id = :id OR (id > :id || '~' AND id < :id || char(127)))
  AND (status NOT IN ('completed', 'failed', 'cancelled')
    OR (status = 'cancelled' AND wait_kind IS 'moving'))
ORDER BY id;

-- name: delete_keys_of_run
DELETE FROM keys WHERE run_id = ?;

-- name: delete_keys_of_tree
DELETE FROM keys WHERE run_id = :id OR (run_id > :id || '~' AND run_id < :id || char(127));

-- name: delete_facts_of_root
DELETE FROM facts WHERE root = ?;

-- name: delete_run
DELETE FROM runs WHERE key = ?;

-- name: delete_details
DELETE FROM run_details WHERE key = ?;

-- name: delete_values
DELETE FROM run_values WHERE key = ?;

-- name: delete_attributes_of_run
DELETE FROM attributes WHERE run_key = ?;

-- name: delete_events
DELETE FROM events WHERE run_key = ?;

-- name: delete_inbox
DELETE FROM inbox WHERE run_key = ?;

-- name: delete_receipts
DELETE FROM receipts WHERE run_key = ?;

-- name: delete_timers
DELETE FROM timers WHERE run_key = ?;

-- name: delete_unfired_timers
DELETE FROM timers WHERE run_key = ? AND fired = 0;

-- name: delete_entries
DELETE FROM entries WHERE run_key = ?;

-- name: delete_activities
DELETE FROM activities WHERE run_key = ?;

-- name: delete_snapshot
DELETE FROM snapshots WHERE run_key = ?;

-- name: delete_tasks_of_run
DELETE FROM tasks WHERE run_id = ?;

-- name: find_uid
SELECT uid FROM runs WHERE id = ?;

-- name: delete_dead_tasks_of_run
DELETE FROM dead_tasks WHERE run_id = ?;

-- name: find_ended
-- Roots that ended before a time, oldest first, with no open run above or below them; a run that is
-- being moved counts as open. INSTR excludes children: they are deleted with their root.
SELECT r.id
FROM runs AS r
WHERE r.ended_at IS NOT NULL AND r.ended_at < :before AND instr(r.id, '~') = 0
  AND (:statuses IS NULL OR r.status IN (SELECT value FROM json_each(:statuses)))
  AND NOT (r.status = 'cancelled' AND r.wait_kind IS 'moving')
  AND NOT EXISTS (
      SELECT 1 FROM runs AS p
      WHERE p.id = r.parent AND (p.status NOT IN ('completed', 'failed', 'cancelled')
        OR (p.status = 'cancelled' AND p.wait_kind IS 'moving'))
  )
  AND NOT EXISTS (
      SELECT 1 FROM runs AS c
      WHERE c.id > r.id || '~' AND c.id < r.id || char(127)
        AND (c.status NOT IN ('completed', 'failed', 'cancelled')
          OR (c.status = 'cancelled' AND c.wait_kind IS 'moving'))
  )
ORDER BY r.ended_at, r.id
LIMIT :limit;
