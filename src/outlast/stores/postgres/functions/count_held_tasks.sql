-- Of the held tasks of a queue: how many are in flight, how many have an ended lease, and the oldest
-- `ready_at` of the latter.
CREATE OR REPLACE FUNCTION @count_held_tasks(
    now bigint, q text, most bigint, most_held bigint,
    OUT held bigint, OUT late bigint, OUT first bigint
)
LANGUAGE sql STABLE AS $$
    SELECT (SELECT count(*) FROM (
        (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue = q AND t.fair_key = ''
           AND t.claimed_until > now LIMIT most_held)
        UNION ALL
        (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue = q AND t.fair_key = ''
           AND t.claimed_until IS NULL LIMIT most_held)
        UNION ALL
        (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.queue = q
           AND t.claimed_until > now LIMIT most_held)
        UNION ALL
        (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.queue = q
           AND t.claimed_until IS NULL LIMIT most_held)
    ) AS h), l.late, l.first
    FROM (SELECT count(*) AS late, min(e.ready_at) AS first FROM (
        (SELECT t.ready_at FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue = q AND t.fair_key = ''
           AND t.claimed_until <= now LIMIT most)
        UNION ALL
        (SELECT t.ready_at FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.queue = q
           AND t.claimed_until <= now LIMIT most)
    ) AS e) AS l
$$;
