-- When a task of these queues may become ready by time alone, or NULL. Now, if there are wake-ups to apply.
CREATE OR REPLACE FUNCTION @next_ready_at(at bigint, shift bigint, queues text[]) RETURNS bigint
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now(at, shift);
    first bigint;
    q text;
    f @policies;
BEGIN
    FOREACH q IN ARRAY queues LOOP
        first := least(first, (
            SELECT t.ready_at FROM @tasks AS t
            WHERE t.owner IS NULL AND t.key > 0 AND t.queue = q AND t.ready_at > now
            ORDER BY t.ready_at LIMIT 1
        ), (
            SELECT l.wake_at FROM @fair_keys AS l
            WHERE l.queue = q AND l.wake_at < 9223372036854775806
            ORDER BY l.wake_at LIMIT 1
        ), @next_lease_end(now, q));
        IF EXISTS (SELECT FROM @fair_key_wakeups AS r WHERE r.scope = split_part(q, '/', 1)) THEN
            RETURN now;
        END IF;
        SELECT * INTO f FROM @policies AS w WHERE w.scope = split_part(q, '/', 1);
        IF f.rate_per IS NOT NULL THEN
            first := least(first, (
                SELECT b.at + f.rate_per FROM @task_starts AS b
                WHERE b.scope = f.scope AND b.at > now - f.rate_per ORDER BY b.at LIMIT 1
            ));
        END IF;
        IF f.concurrency IS NOT NULL THEN
            -- A slot of another step may become free.
            first := least(first, (
                SELECT min(@next_lease_end(now, o.queue)) FROM @queues_of_scope(f.scope) AS o
            ));
        END IF;
    END LOOP;
    RETURN CASE WHEN first IS NOT NULL THEN greatest(first, now) END;
END $$;
