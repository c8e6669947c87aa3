-- How queues stand, for people and for workers that want to sleep. Nothing here changes anything.

-- The queues from one name to another, without that, which have tasks, living or dead: two seeks each.
CREATE FUNCTION @find_queues_1(first text, last text) RETURNS TABLE (queue text)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE free (queue) AS (
        (SELECT t.queue FROM @tasks AS t
         WHERE t.owner IS NULL AND t.queue >= first AND t.queue < last ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT n.queue FROM free CROSS JOIN LATERAL (
            SELECT t.queue FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue > free.queue AND t.queue < last ORDER BY 1 LIMIT 1
        ) AS n
    ), held (queue) AS (
        (SELECT t.queue FROM @tasks AS t
         WHERE t.owner IS NOT NULL AND t.queue >= first AND t.queue < last ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT n.queue FROM held CROSS JOIN LATERAL (
            SELECT t.queue FROM @tasks AS t
            WHERE t.owner IS NOT NULL AND t.queue > held.queue AND t.queue < last ORDER BY 1 LIMIT 1
        ) AS n
    ), dead (queue) AS (
        (SELECT t.queue FROM @dead_tasks AS t
         WHERE t.queue >= first AND t.queue < last ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT n.queue FROM dead CROSS JOIN LATERAL (
            SELECT t.queue FROM @dead_tasks AS t
            WHERE t.queue > dead.queue AND t.queue < last ORDER BY 1 LIMIT 1
        ) AS n
    )
    SELECT f.queue FROM free AS f UNION SELECT h.queue FROM held AS h UNION SELECT d.queue FROM dead AS d
$$;

-- The queues of a scope: the one of its name, and those behind a slash.
CREATE FUNCTION @queues_of_1(s text) RETURNS TABLE (queue text)
LANGUAGE sql STABLE AS $$
    SELECT q.queue FROM @find_queues_1(s, s || chr(1)) AS q
    UNION ALL
    SELECT q.queue FROM @find_queues_1(s || '/', s || '0') AS q
$$;

-- The first `most` lines of a queue that have tasks, free or held, '' among them: two seeks each.
CREATE FUNCTION @find_lines_1(q text, most int) RETURNS TABLE (line text)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE free (line, n) AS (
        (SELECT t.line, 1 FROM @tasks AS t
         WHERE t.owner IS NULL AND t.queue = q ORDER BY t.line LIMIT 1)
        UNION ALL
        SELECT l.line, f.n + 1 FROM free AS f CROSS JOIN LATERAL (
            SELECT t.line FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = q AND t.line > f.line ORDER BY t.line LIMIT 1
        ) AS l WHERE f.n < most
    ), held (line, n) AS (
        (SELECT t.line, 1 FROM @tasks AS t
         WHERE t.owner IS NOT NULL AND t.queue = q ORDER BY t.line LIMIT 1)
        UNION ALL
        SELECT l.line, h.n + 1 FROM held AS h CROSS JOIN LATERAL (
            SELECT t.line FROM @tasks AS t
            WHERE t.owner IS NOT NULL AND t.queue = q AND t.line > h.line ORDER BY t.line LIMIT 1
        ) AS l WHERE h.n < most
    )
    SELECT o.line FROM (SELECT f.line FROM free AS f UNION SELECT h.line FROM held AS h) AS o
    ORDER BY o.line COLLATE "C" LIMIT most
$$;

-- Tasks that are due and unclaimed, in the order in which they should be done by priority and time: of
-- one queue, or of all. Queues, lines and levels of priority are found by skipping, two seeks each.
CREATE OR REPLACE FUNCTION @available_tasks_1(at bigint, shift bigint, a_queue text, most int)
RETURNS SETOF @tasks
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    x record;
    level bigint;
    ks bigint[] := '{}';
    more bigint[];
    free int;
BEGIN
    FOR x IN
        SELECT q.queue, l.line
        FROM @find_queues_1(
            coalesce(a_queue, ''), coalesce(a_queue || chr(1), repeat(chr(1114111), 257))
        ) AS q CROSS JOIN LATERAL @find_lines_1(q.queue, 2147483647) AS l
    LOOP
        SELECT ks || coalesce(array_agg(e.key), '{}') INTO ks FROM (
            SELECT t.key FROM @tasks AS t
            WHERE t.owner IS NOT NULL AND t.queue = x.queue AND t.line = x.line
              AND t.claimed_until <= now AND t.ready_at <= now
            ORDER BY t.priority, t.ready_at, t.key
            LIMIT most
        ) AS e;
        free := 0;
        SELECT t.priority INTO level FROM @tasks AS t
        WHERE t.owner IS NULL AND t.queue = x.queue AND t.line = x.line
        ORDER BY t.priority LIMIT 1;
        WHILE level IS NOT NULL AND free < most LOOP
            SELECT coalesce(array_agg(f.key), '{}') INTO more FROM (
                SELECT t.key FROM @tasks AS t
                WHERE t.owner IS NULL AND t.queue = x.queue AND t.line = x.line
                  AND t.priority = level AND t.ready_at <= now
                ORDER BY t.ready_at, t.key
                LIMIT most
            ) AS f;
            ks := ks || more;
            free := free + cardinality(more);
            SELECT t.priority INTO level FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = x.queue AND t.line = x.line AND t.priority > level
            ORDER BY t.priority LIMIT 1;
        END LOOP;
    END LOOP;
    RETURN QUERY
        SELECT t.* FROM @tasks AS t WHERE t.key = ANY (ks)
        ORDER BY t.priority, t.ready_at, t.key
        LIMIT most;
END $$;


-- Of the held tasks of a queue, with a key or without: how many are in flight, how many are not any more,
-- since their lease has ended, and since when one of those has been ready.
CREATE FUNCTION @count_held_1(
    now bigint, q text, most bigint, most_held bigint,
    OUT held bigint, OUT late bigint, OUT first bigint
)
LANGUAGE sql STABLE AS $$
    SELECT (SELECT count(*) FROM (
        (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue = q AND t.line = ''
           AND t.claimed_until > now LIMIT most_held)
        UNION ALL
        (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue = q AND t.line = ''
           AND t.claimed_until IS NULL LIMIT most_held)
        UNION ALL
        (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.line <> '' AND t.queue = q
           AND t.claimed_until > now LIMIT most_held)
        UNION ALL
        (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.line <> '' AND t.queue = q
           AND t.claimed_until IS NULL LIMIT most_held)
    ) AS h), l.late, l.first
    FROM (SELECT count(*) AS late, min(e.ready_at) AS first FROM (
        (SELECT t.ready_at FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue = q AND t.line = ''
           AND t.claimed_until <= now LIMIT most)
        UNION ALL
        (SELECT t.ready_at FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.line <> '' AND t.queue = q
           AND t.claimed_until <= now LIMIT most)
    ) AS e) AS l
$$;

-- How a queue stands. Nothing is counted further than `most`, or to a limit to tell whether it is reached.
CREATE FUNCTION @queue_stats_1(at bigint, shift bigint, s text, most bigint)
RETURNS TABLE (
    rules text, ready bigint, late bigint, delayed bigint, in_flight bigint, dead bigint,
    oldest bigint, started bigint
)
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    f @policies;
BEGIN
    SELECT * INTO f FROM @policies AS w WHERE w.scope = s;
    rules := f.rules;
    SELECT coalesce(sum(d.ready), 0), coalesce(sum(h.late), 0), coalesce(sum(d.delayed), 0),
           coalesce(sum(h.held), 0), coalesce(sum(d.dead), 0), min(least(d.first, h.first))
    INTO ready, late, delayed, in_flight, dead, oldest
    FROM @queues_of_1(s) AS q
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
    CROSS JOIN LATERAL @count_held_1(now, q.queue, most, greatest(most, f.concurrency)) AS h;
    SELECT count(*) INTO started FROM (
        SELECT FROM @starts AS b WHERE b.scope = s AND b.at > now - f.rate_per LIMIT f.rate_limit
    ) AS x;
    RETURN NEXT;
END $$;

-- The first `most` keys of a queue: what is ready, in flight, and has begun within the period of its rate.
CREATE FUNCTION @key_stats_1(at bigint, shift bigint, s text, most int, counted int)
RETURNS TABLE (key text, ready bigint, in_flight bigint, started bigint)
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    f @policies;
BEGIN
    SELECT * INTO f FROM @policies AS w WHERE w.scope = s;
    RETURN QUERY
        SELECT k.line, sum(k.ready)::bigint, sum(k.held)::bigint, (
            SELECT count(*) FROM (
                SELECT FROM @starts AS b
                WHERE b.line <> '' AND b.scope = s AND b.line = k.line AND b.at > now - f.key_rate_per
                LIMIT f.key_rate_limit
            ) AS x
        )
        FROM (
            SELECT l.line, @count_line_1(now, q.queue, l.line, counted) AS ready, (
                SELECT count(*) FROM (
                    SELECT FROM @tasks AS t
                    WHERE t.owner IS NOT NULL AND t.queue = q.queue AND t.line = l.line
                      AND (t.claimed_until IS NULL OR t.claimed_until > now)
                    LIMIT greatest(counted, f.key_concurrency)
                ) AS x
            ) AS held
            FROM @queues_of_1(s) AS q CROSS JOIN LATERAL @find_lines_1(q.queue, most + 1) AS l
            WHERE l.line <> ''
        ) AS k
        GROUP BY k.line ORDER BY k.line COLLATE "C" LIMIT most;
END $$;

-- When the next lease of a queue ends, or NULL.
CREATE FUNCTION @lease_end_1(now bigint, q text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT least((
        SELECT t.claimed_until FROM @tasks AS t
        WHERE t.owner IS NOT NULL AND t.queue = q AND t.line = '' AND t.claimed_until > now
        ORDER BY t.claimed_until LIMIT 1
    ), (
        SELECT t.claimed_until FROM @tasks AS t
        WHERE t.owner IS NOT NULL AND t.line <> '' AND t.queue = q AND t.claimed_until > now
        ORDER BY t.claimed_until LIMIT 1
    ))
$$;

-- When something of these queues may be ready by time alone, or NULL. Now, if there are wake-ups that
-- nobody has heard.
CREATE FUNCTION @next_ready_at_1(at bigint, shift bigint, queues text[]) RETURNS bigint
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
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
            SELECT l.wake_at FROM @lines AS l
            WHERE l.queue = q AND l.wake_at < 9223372036854775806
            ORDER BY l.wake_at LIMIT 1
        ), @lease_end_1(now, q));
        IF EXISTS (SELECT FROM @line_wakeups AS r WHERE r.scope = split_part(q, '/', 1)) THEN
            RETURN now;
        END IF;
        SELECT * INTO f FROM @policies AS w WHERE w.scope = split_part(q, '/', 1);
        IF f.rate_per IS NOT NULL THEN
            first := least(first, (
                SELECT b.at + f.rate_per FROM @starts AS b
                WHERE b.scope = f.scope AND b.at > now - f.rate_per ORDER BY b.at LIMIT 1
            ));
        END IF;
        IF f.concurrency IS NOT NULL THEN
            -- A place of another step may become free.
            first := least(first, (
                SELECT min(@lease_end_1(now, o.queue)) FROM @queues_of_1(f.scope) AS o
            ));
        END IF;
    END LOOP;
    RETURN CASE WHEN first IS NOT NULL THEN greatest(first, now) END;
END $$;

CREATE OR REPLACE VIEW @show_tasks AS
SELECT queue, id, run_id, kind, name, step, priority, attempt, false AS dead,
       CASE WHEN owner IS NOT NULL THEN 'in flight' ELSE 'waiting' END AS state, owner,
       to_timestamp(ready_at / 1000000.0) AS ready_at,
       to_timestamp(claimed_until / 1000000.0) AS claimed_until, NULL::text AS reason, line AS key
FROM @tasks
UNION ALL
SELECT queue, id, run_id, kind, name, step, priority, attempt, true, 'dead', NULL, NULL, NULL, reason,
       line
FROM @dead_tasks;
