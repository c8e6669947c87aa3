-- Queue policies and stride scheduling, for fair_queue.py and queue_stats.py.

-- name: load_policy
SELECT rules, declared, present FROM policies WHERE scope = ?;

-- name: load_policies
SELECT rules FROM policies WHERE rules IS NOT NULL ORDER BY scope;

-- name: save_policy
INSERT INTO policies (scope, rules, declared, present) VALUES (:scope, :rules, :declared, 0)
ON CONFLICT (scope) DO UPDATE SET rules = excluded.rules, declared = excluded.declared;

-- name: save_present
INSERT INTO policies (scope, present) VALUES (:scope, :present)
ON CONFLICT (scope) DO UPDATE SET present = excluded.present;

-- name: insert_policy_change
INSERT INTO policy_changes (scope, at, by, rules) VALUES (?, ?, ?, ?);

-- name: forget_policy_changes
DELETE FROM policy_changes WHERE scope = :scope AND key <= (
    SELECT key FROM policy_changes WHERE scope = :scope ORDER BY key DESC LIMIT 1 OFFSET :kept);

-- name: load_policy_changes
SELECT at, by, rules FROM policy_changes WHERE scope = ? ORDER BY key DESC LIMIT ?;

-- name: wake_scope
UPDATE lines SET wake_at = NULL WHERE scope = ? AND wake_at IS NOT NULL;

-- name: has_lines
SELECT EXISTS (SELECT 1 FROM lines WHERE queue = ?);

-- name: wake_lines
UPDATE lines SET wake_at = NULL WHERE queue = :queue AND wake_at <= :now;

-- name: insert_line
INSERT OR IGNORE INTO lines (queue, line, scope, passed)
SELECT :queue, :line, :scope,
       coalesce((SELECT max(passed) FROM lines WHERE scope = :scope AND line = :line), 0);

-- name: count_awake
SELECT count(*) FROM (
    SELECT 1 FROM lines WHERE queue = ? AND wake_at IS NULL AND line <> '' LIMIT ?);

-- name: find_lines
-- Awake lines in the order of their pass. Counts stop at what is needed.
SELECT l.line, l.passed,
       (SELECT count(*) FROM (
            SELECT 1 FROM tasks AS t
            WHERE t.owner IS NULL AND t.line <> '' AND t.queue = :queue AND t.line = l.line
              AND t.ready_at <= :now
            LIMIT :few)),
       (SELECT count(*) FROM (
            SELECT 1 FROM tasks AS t
            WHERE t.owner IS NOT NULL AND t.line <> '' AND t.line = l.line AND t.queue = :queue
              AND t.claimed_until <= :now AND t.ready_at <= :now
            LIMIT :few)),
       CASE WHEN :in_flight IS NULL THEN 0 ELSE
            (SELECT count(*) FROM tasks AS t
             WHERE t.owner IS NOT NULL AND t.line <> '' AND t.line = l.line
               AND t.queue >= :scope AND t.queue < :above
               AND (t.queue = :scope OR t.queue >= :within)
               AND (t.claimed_until IS NULL OR t.claimed_until > :now)) END,
       CASE WHEN :since IS NULL THEN 0 ELSE
            (SELECT count(*) FROM starts AS s
             WHERE s.line <> '' AND s.scope = :scope AND s.line = l.line AND s.at > :since) END
FROM lines AS l
WHERE l.queue = :queue AND l.wake_at IS NULL AND l.line <> ''
  AND (l.passed, l.line) > (:passed, :line)
ORDER BY l.passed, l.line
LIMIT :limit;

-- name: count_line
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM tasks
            WHERE owner IS NULL AND line <> '' AND queue = :queue AND line = :line
              AND ready_at <= :now
            LIMIT :few))
     + (SELECT count(*) FROM (
            SELECT 1 FROM tasks
            WHERE owner IS NOT NULL AND line <> '' AND line = :line AND queue = :queue
              AND claimed_until <= :now AND ready_at <= :now
            LIMIT :few));

-- name: find_line
SELECT passed FROM lines WHERE queue = ? AND line = ?;

-- name: move_line
UPDATE lines SET passed = ? WHERE scope = ? AND line = ?;

-- name: find_line_time
-- When a line that cannot hand out a task may do so again: a delayed task comes due, a lease expires,
-- or a start leaves the period of the rate.
SELECT (SELECT t.ready_at FROM tasks AS t
        WHERE t.owner IS NULL AND t.line <> '' AND t.queue = :queue AND t.line = :line
          AND t.ready_at > :now
        ORDER BY t.ready_at LIMIT 1),
       (SELECT t.claimed_until FROM tasks AS t
        WHERE t.owner IS NOT NULL AND t.line <> '' AND t.line = :line AND t.queue >= :scope
          AND t.queue < :above AND (t.queue = :scope OR t.queue >= :within)
          AND t.claimed_until > :now
        ORDER BY t.claimed_until LIMIT 1),
       (SELECT s.at + :per FROM starts AS s
        WHERE s.line <> '' AND s.scope = :scope AND s.line = :line AND s.at > :since
        ORDER BY s.at LIMIT 1);

-- name: forget_lines
-- Lines without tasks whose pass the other lines have reached.
DELETE FROM lines
WHERE (queue, line) IN (
    SELECT l.queue, l.line FROM lines AS l
    WHERE l.scope = :scope AND l.wake_at = 9223372036854775807 AND l.passed <= :present
      AND l.line <> ''
      AND NOT EXISTS (SELECT 1 FROM tasks AS t
                      WHERE t.owner IS NULL AND t.line <> '' AND t.queue = l.queue
                        AND t.line = l.line)
      AND NOT EXISTS (SELECT 1 FROM tasks AS t
                      WHERE t.owner IS NOT NULL AND t.line <> '' AND t.line = l.line
                        AND t.queue = l.queue)
    ORDER BY l.passed LIMIT 100);

-- name: put_line_to_sleep
UPDATE lines SET wake_at = ? WHERE queue = ? AND line = ?;

-- name: count_in_flight
SELECT count(*) FROM tasks
WHERE owner IS NOT NULL AND queue >= :scope AND queue < :above
  AND (queue = :scope OR queue >= :within)
  AND (claimed_until IS NULL OR claimed_until > :now);

-- name: count_starts
SELECT count(*) FROM starts WHERE scope = ? AND at > ?;

-- name: insert_start
INSERT INTO starts (scope, line, at) VALUES (?, ?, ?);

-- name: forget_starts
DELETE FROM starts WHERE key IN (
    SELECT key FROM starts WHERE scope = ? AND at <= ? ORDER BY at LIMIT 1000);

-- name: find_line_first
-- The first tasks of a line, ready or not.
SELECT priority, ready_at, key FROM tasks
WHERE owner IS NULL AND line <> '' AND queue = :queue AND line = :line
ORDER BY priority, ready_at, key
LIMIT :limit;

-- name: find_line_level
SELECT min(priority) FROM tasks
WHERE owner IS NULL AND line <> '' AND queue = :queue AND line = :line AND priority >= :priority;

-- name: find_line_ready
SELECT priority, ready_at, key
FROM tasks
WHERE owner IS NULL AND line <> '' AND queue = :queue AND line = :line AND priority = :priority
  AND ready_at <= :now
ORDER BY ready_at, key
LIMIT :limit;

-- name: find_line_expired
SELECT priority, ready_at, key
FROM tasks
WHERE owner IS NOT NULL AND line <> '' AND line = :line AND queue = :queue
  AND claimed_until <= :now AND ready_at <= :now
ORDER BY priority, ready_at, key
LIMIT :limit;

-- name: count_due
-- How many free tasks of a queue are ready, how many delayed, and since when the first is ready. Counts
-- stop at the limit.
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM tasks WHERE owner IS NULL AND queue = :queue AND ready_at <= :now
            LIMIT :counted)),
       (SELECT count(*) FROM (
            SELECT 1 FROM tasks WHERE owner IS NULL AND queue = :queue AND ready_at > :now
            LIMIT :counted)),
       (SELECT min(ready_at) FROM tasks
        WHERE owner IS NULL AND queue = :queue AND ready_at <= :now);

-- name: count_held
-- How many claimed tasks of a queue are in flight.
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM tasks WHERE owner IS NOT NULL AND queue = :queue AND claimed_until > :now
            LIMIT :held))
     + (SELECT count(*) FROM (
            SELECT 1 FROM tasks WHERE owner IS NOT NULL AND queue = :queue AND claimed_until IS NULL
            LIMIT :held));

-- name: count_late
-- How many claimed tasks have an expired lease, and since when one of those has been ready.
SELECT count(*), min(ready_at) FROM (
    SELECT ready_at FROM tasks WHERE owner IS NOT NULL AND queue = :queue AND claimed_until <= :now
    LIMIT :counted);

-- name: count_dead
SELECT count(*) FROM (SELECT 1 FROM dead_tasks WHERE queue = :queue LIMIT :counted);

-- name: find_keys
-- The first keys of a scope, each with tasks ready, in flight, and recently started.
SELECT k.line,
       (SELECT count(*) FROM (
            SELECT 1 FROM lines AS l, tasks AS t
            WHERE l.scope = :scope AND l.line = k.line
              AND t.owner IS NULL AND t.line <> '' AND t.queue = l.queue AND t.line = l.line
              AND t.ready_at <= :now
            LIMIT :counted)),
       (SELECT count(*) FROM (
            SELECT 1 FROM tasks AS t
            WHERE t.owner IS NOT NULL AND t.line <> '' AND t.line = k.line AND t.queue >= :scope
              AND t.queue < :above AND (t.queue = :scope OR t.queue >= :within)
              AND (t.claimed_until IS NULL OR t.claimed_until > :now)
            LIMIT :key_held)),
       (SELECT count(*) FROM (
            SELECT 1 FROM starts AS s
            WHERE s.line <> '' AND s.scope = :scope AND s.line = k.line AND s.at > :key_since
            LIMIT :key_begun))
FROM (SELECT DISTINCT line FROM lines WHERE scope = :scope AND line <> '' ORDER BY line
      LIMIT :keys) AS k;

-- name: find_next_ready
-- The earliest time at which a delayed task comes due, a lease expires or a line wakes.
SELECT min(at) FROM (
    SELECT min(ready_at) AS at FROM tasks
    WHERE owner IS NULL AND queue = :queue AND ready_at > :now
    UNION ALL
    SELECT min(claimed_until) FROM tasks
    WHERE owner IS NOT NULL AND queue = :queue AND claimed_until > :now
    UNION ALL
    SELECT min(wake_at) FROM lines WHERE queue = :queue AND wake_at > :now
);

-- name: find_next_start
SELECT min(at) + :per FROM starts WHERE scope = :scope AND at > :since;
