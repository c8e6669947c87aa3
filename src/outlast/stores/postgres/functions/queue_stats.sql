-- The state of a queue. Counts stop at `most`, or at a limit of the policy to tell whether it is reached.
CREATE OR REPLACE FUNCTION @queue_stats(at bigint, shift bigint, s text, most bigint)
RETURNS TABLE (
    policy text, ready bigint, late bigint, delayed bigint, in_flight bigint, dead bigint,
    oldest bigint, started bigint
)
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now(at, shift);
    f @policies;
BEGIN
    SELECT * INTO f FROM @policies AS w WHERE w.scope = s;
    policy := f.policy;
    SELECT coalesce(sum(d.ready), 0), coalesce(sum(h.late), 0), coalesce(sum(d.delayed), 0),
           coalesce(sum(h.held), 0), coalesce(sum(d.dead), 0), min(least(d.first, h.first))
    INTO ready, late, delayed, in_flight, dead, oldest
    FROM @queues_of_scope(s) AS q
    CROSS JOIN LATERAL (
        SELECT (SELECT count(*) FROM (
                   SELECT FROM @tasks AS t
                   WHERE t.owner IS NULL AND t.key > 0 AND t.queue = q.queue
                     AND t.ready_at <= now LIMIT most
               ) AS x) AS ready,
               (SELECT count(*) FROM (
                   SELECT FROM @tasks AS t
                   WHERE t.owner IS NULL AND t.key > 0 AND t.queue = q.queue
                     AND t.ready_at > now LIMIT most
               ) AS x) AS delayed,
               (SELECT t.ready_at FROM @tasks AS t
                WHERE t.owner IS NULL AND t.key > 0 AND t.queue = q.queue
                  AND t.ready_at <= now
                ORDER BY t.ready_at LIMIT 1) AS first,
               (SELECT count(*) FROM (
                   SELECT FROM @dead_tasks AS t WHERE t.queue = q.queue LIMIT most
               ) AS x) AS dead
    ) AS d
    CROSS JOIN LATERAL @count_held_tasks(now, q.queue, most, greatest(most, f.concurrency)) AS h;
    SELECT count(*) INTO started FROM (
        SELECT FROM @task_starts AS b WHERE b.scope = s AND b.at > now - f.rate_per LIMIT f.rate_limit
    ) AS x;
    RETURN NEXT;
END $$;
