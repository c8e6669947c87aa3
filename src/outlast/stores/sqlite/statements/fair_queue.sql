-- Queue policies and stride scheduling, for fair_queue.py and queue_stats.py.

-- name: load_policy
SELECT rules, declared, global_pass FROM policies WHERE scope = ?;

-- name: load_policies
SELECT rules FROM policies WHERE rules IS NOT NULL ORDER BY scope;

-- name: save_policy
INSERT INTO policies (scope, rules, declared, global_pass) VALUES (:scope, :rules, :declared, 0)
ON CONFLICT (scope) DO UPDATE SET rules = excluded.rules, declared = excluded.declared;

-- name: save_global_pass
INSERT INTO policies (scope, global_pass) VALUES (:scope, :global_pass)
ON CONFLICT (scope) DO UPDATE SET global_pass = excluded.global_pass;

-- name: insert_policy_change
INSERT INTO policy_changes (scope, at, by, rules) VALUES (?, ?, ?, ?);

-- name: forget_policy_changes
DELETE FROM policy_changes WHERE scope = :scope AND key <= (
    SELECT key FROM policy_changes WHERE scope = :scope ORDER BY key DESC LIMIT 1 OFFSET :kept);

-- name: load_policy_changes
SELECT at, by, rules FROM policy_changes WHERE scope = ? ORDER BY key DESC LIMIT ?;

-- name: wake_scope
UPDATE fair_keys SET wake_at = NULL WHERE scope = ? AND wake_at IS NOT NULL;

-- name: has_fair_keys
SELECT EXISTS (SELECT 1 FROM fair_keys WHERE queue = ?);

-- name: wake_fair_keys
UPDATE fair_keys SET wake_at = NULL WHERE queue = :queue AND wake_at <= :now;

-- name: insert_fair_key
INSERT OR IGNORE INTO fair_keys (queue, fair_key, scope, pass)
SELECT :queue, :fair_key, :scope,
       coalesce((SELECT max(pass) FROM fair_keys WHERE scope = :scope AND fair_key = :fair_key), 0);

-- name: count_awake
SELECT count(*) FROM (
    SELECT 1 FROM fair_keys WHERE queue = ? AND wake_at IS NULL AND fair_key <> '' LIMIT ?);

-- name: find_fair_keys
-- Awake fair keys in the order of their pass. Counts stop at what is needed.
SELECT l.fair_key, l.pass,
       (SELECT count(*) FROM (
            SELECT 1 FROM tasks AS t
            WHERE t.owner IS NULL AND t.fair_key <> '' AND t.queue = :queue AND t.fair_key = l.fair_key
              AND t.ready_at <= :now
            LIMIT :few)),
       (SELECT count(*) FROM (
            SELECT 1 FROM tasks AS t
            WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.fair_key = l.fair_key AND t.queue = :queue
              AND t.claimed_until <= :now AND t.ready_at <= :now
            LIMIT :few)),
       CASE WHEN :in_flight IS NULL THEN 0 ELSE
            (SELECT count(*) FROM tasks AS t
             WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.fair_key = l.fair_key
               AND t.queue >= :scope AND t.queue < :above
               AND (t.queue = :scope OR t.queue >= :within)
               AND (t.claimed_until IS NULL OR t.claimed_until > :now)) END,
       CASE WHEN :since IS NULL THEN 0 ELSE
            (SELECT count(*) FROM starts AS s
             WHERE s.fair_key <> '' AND s.scope = :scope AND s.fair_key = l.fair_key AND s.at > :since) END
FROM fair_keys AS l
WHERE l.queue = :queue AND l.wake_at IS NULL AND l.fair_key <> ''
  AND (l.pass, l.fair_key) > (:pass_value, :fair_key)
ORDER BY l.pass, l.fair_key
LIMIT :limit;

-- name: count_fair_key
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM tasks
            WHERE owner IS NULL AND fair_key <> '' AND queue = :queue AND fair_key = :fair_key
              AND ready_at <= :now
            LIMIT :few))
     + (SELECT count(*) FROM (
            SELECT 1 FROM tasks
            WHERE owner IS NOT NULL AND fair_key <> '' AND fair_key = :fair_key AND queue = :queue
              AND claimed_until <= :now AND ready_at <= :now
            LIMIT :few));

-- name: find_fair_key
SELECT pass FROM fair_keys WHERE queue = ? AND fair_key = ?;

-- name: move_fair_key
UPDATE fair_keys SET pass = ? WHERE scope = ? AND fair_key = ?;

-- name: find_fair_key_time
-- When a fair key that cannot hand out a task may do so again: a delayed task comes due, a lease expires,
-- or a start leaves the period of the rate.
SELECT (SELECT t.ready_at FROM tasks AS t
        WHERE t.owner IS NULL AND t.fair_key <> '' AND t.queue = :queue AND t.fair_key = :fair_key
          AND t.ready_at > :now
        ORDER BY t.ready_at LIMIT 1),
       (SELECT t.claimed_until FROM tasks AS t
        WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.fair_key = :fair_key AND t.queue >= :scope
          AND t.queue < :above AND (t.queue = :scope OR t.queue >= :within)
          AND t.claimed_until > :now
        ORDER BY t.claimed_until LIMIT 1),
       (SELECT s.at + :per FROM starts AS s
        WHERE s.fair_key <> '' AND s.scope = :scope AND s.fair_key = :fair_key AND s.at > :since
        ORDER BY s.at LIMIT 1);

-- name: forget_fair_keys
-- Lines without tasks whose pass the other fair keys have reached.
DELETE FROM fair_keys
WHERE (queue, fair_key) IN (
    SELECT l.queue, l.fair_key FROM fair_keys AS l
    WHERE l.scope = :scope AND l.wake_at = 9223372036854775807 AND l.pass <= :global_pass
      AND l.fair_key <> ''
      AND NOT EXISTS (SELECT 1 FROM tasks AS t
                      WHERE t.owner IS NULL AND t.fair_key <> '' AND t.queue = l.queue
                        AND t.fair_key = l.fair_key)
      AND NOT EXISTS (SELECT 1 FROM tasks AS t
                      WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.fair_key = l.fair_key
                        AND t.queue = l.queue)
    ORDER BY l.pass LIMIT 100);

-- name: put_key_to_sleep
UPDATE fair_keys SET wake_at = ? WHERE queue = ? AND fair_key = ?;

-- name: count_in_flight
SELECT count(*) FROM tasks
WHERE owner IS NOT NULL AND queue >= :scope AND queue < :above
  AND (queue = :scope OR queue >= :within)
  AND (claimed_until IS NULL OR claimed_until > :now);

-- name: count_starts
SELECT count(*) FROM starts WHERE scope = ? AND at > ?;

-- name: insert_start
INSERT INTO starts (scope, fair_key, at) VALUES (?, ?, ?);

-- name: forget_starts
DELETE FROM starts WHERE key IN (
    SELECT key FROM starts WHERE scope = ? AND at <= ? ORDER BY at LIMIT 1000);

-- name: find_fair_key_first
-- The first tasks of a fair key, ready or not.
SELECT priority, ready_at, key FROM tasks
WHERE owner IS NULL AND fair_key <> '' AND queue = :queue AND fair_key = :fair_key
ORDER BY priority, ready_at, key
LIMIT :limit;

-- name: find_fair_key_level
SELECT min(priority) FROM tasks
WHERE owner IS NULL AND fair_key <> '' AND queue = :queue AND fair_key = :fair_key AND priority >= :priority;

-- name: find_fair_key_ready
SELECT priority, ready_at, key
FROM tasks
WHERE owner IS NULL AND fair_key <> '' AND queue = :queue AND fair_key = :fair_key AND priority = :priority
  AND ready_at <= :now
ORDER BY ready_at, key
LIMIT :limit;

-- name: find_fair_key_expired
SELECT priority, ready_at, key
FROM tasks
WHERE owner IS NOT NULL AND fair_key <> '' AND fair_key = :fair_key AND queue = :queue
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
SELECT k.fair_key,
       (SELECT count(*) FROM (
            SELECT 1 FROM fair_keys AS l, tasks AS t
            WHERE l.scope = :scope AND l.fair_key = k.fair_key
              AND t.owner IS NULL AND t.fair_key <> '' AND t.queue = l.queue AND t.fair_key = l.fair_key
              AND t.ready_at <= :now
            LIMIT :counted)),
       (SELECT count(*) FROM (
            SELECT 1 FROM tasks AS t
            WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.fair_key = k.fair_key AND t.queue >= :scope
              AND t.queue < :above AND (t.queue = :scope OR t.queue >= :within)
              AND (t.claimed_until IS NULL OR t.claimed_until > :now)
            LIMIT :key_held)),
       (SELECT count(*) FROM (
            SELECT 1 FROM starts AS s
            WHERE s.fair_key <> '' AND s.scope = :scope AND s.fair_key = k.fair_key AND s.at > :key_since
            LIMIT :key_begun))
FROM (SELECT DISTINCT fair_key FROM fair_keys WHERE scope = :scope AND fair_key <> '' ORDER BY fair_key
      LIMIT :keys) AS k;

-- name: find_next_ready
-- The earliest time at which a delayed task comes due, a lease expires or a fair key wakes.
SELECT min(at) FROM (
    SELECT min(ready_at) AS at FROM tasks
    WHERE owner IS NULL AND queue = :queue AND ready_at > :now
    UNION ALL
    SELECT min(claimed_until) FROM tasks
    WHERE owner IS NOT NULL AND queue = :queue AND claimed_until > :now
    UNION ALL
    SELECT min(wake_at) FROM fair_keys WHERE queue = :queue AND wake_at > :now
);

-- name: find_next_start
SELECT min(at) + :per FROM starts WHERE scope = :scope AND at > :since;
