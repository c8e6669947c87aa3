-- The first `most` keys of a queue: ready, in flight, and started within the period of the rate.
CREATE OR REPLACE FUNCTION @key_stats(at bigint, shift bigint, s text, most int, counted int)
RETURNS TABLE (key text, ready bigint, in_flight bigint, started bigint)
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now(at, shift);
    f @policies;
BEGIN
    SELECT * INTO f FROM @policies AS w WHERE w.scope = s;
    RETURN QUERY
        SELECT k.fair_key, sum(k.ready)::bigint, sum(k.held)::bigint, (
            SELECT count(*) FROM (
                SELECT FROM @task_starts AS b
                WHERE b.fair_key <> '' AND b.scope = s AND b.fair_key = k.fair_key AND b.at > now - f.key_rate_per
                LIMIT f.key_rate_limit
            ) AS x
        )
        FROM (
            SELECT l.fair_key, @count_ready_tasks(now, q.queue, l.fair_key, counted) AS ready, (
                SELECT count(*) FROM (
                    SELECT FROM @tasks AS t
                    WHERE t.owner IS NOT NULL AND t.queue = q.queue AND t.fair_key = l.fair_key
                      AND (t.claimed_until IS NULL OR t.claimed_until > now)
                    LIMIT greatest(counted, f.key_concurrency)
                ) AS x
            ) AS held
            FROM @queues_of_scope(s) AS q CROSS JOIN LATERAL @find_fair_keys(q.queue, most + 1) AS l
            WHERE l.fair_key <> ''
        ) AS k
        GROUP BY k.fair_key ORDER BY k.fair_key COLLATE "C" LIMIT most;
END $$;
