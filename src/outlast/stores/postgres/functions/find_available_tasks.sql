-- Due, unclaimed tasks of one queue or of all, by priority and time. Queues, fair keys and priorities are
-- found by skip scans, two seeks each.
CREATE OR REPLACE FUNCTION @find_available_tasks(at bigint, shift bigint, a_queue text, most int)
RETURNS SETOF @tasks
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now(at, shift);
    x record;
    level bigint;
    ks bigint[] := '{}';
    more bigint[];
    free int;
BEGIN
    FOR x IN
        SELECT q.queue, l.fair_key
        FROM @find_queues(
            coalesce(a_queue, ''), coalesce(a_queue || chr(1), repeat(chr(1114111), 257))
        ) AS q CROSS JOIN LATERAL @find_fair_keys(q.queue, 2147483647) AS l
    LOOP
        SELECT ks || coalesce(array_agg(e.key), '{}') INTO ks FROM (
            SELECT t.key FROM @tasks AS t
            WHERE t.owner IS NOT NULL AND t.queue = x.queue AND t.fair_key = x.fair_key
              AND t.claimed_until <= now AND t.ready_at <= now
            ORDER BY t.priority, t.ready_at, t.key
            LIMIT most
        ) AS e;
        free := 0;
        SELECT t.priority INTO level FROM @tasks AS t
        WHERE t.owner IS NULL AND t.queue = x.queue AND t.fair_key = x.fair_key
        ORDER BY t.priority LIMIT 1;
        WHILE level IS NOT NULL AND free < most LOOP
            SELECT coalesce(array_agg(f.key), '{}') INTO more FROM (
                SELECT t.key FROM @tasks AS t
                WHERE t.owner IS NULL AND t.queue = x.queue AND t.fair_key = x.fair_key
                  AND t.priority = level AND t.ready_at <= now
                ORDER BY t.ready_at, t.key
                LIMIT most
            ) AS f;
            ks := ks || more;
            free := free + cardinality(more);
            SELECT t.priority INTO level FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = x.queue AND t.fair_key = x.fair_key AND t.priority > level
            ORDER BY t.priority LIMIT 1;
        END LOOP;
    END LOOP;
    RETURN QUERY
        SELECT t.* FROM @tasks AS t WHERE t.key = ANY (ks)
        ORDER BY t.priority, t.ready_at, t.key
        LIMIT most;
END $$;
