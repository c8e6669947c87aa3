-- The first `most` fair keys of a queue that have tasks, free or held, including '': two seeks each.
CREATE OR REPLACE FUNCTION @find_fair_keys(q text, most int) RETURNS TABLE (fair_key text)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE free (fair_key, n) AS (
        (SELECT t.fair_key, 1 FROM @tasks AS t
         WHERE t.owner IS NULL AND t.queue = q ORDER BY t.fair_key LIMIT 1)
        UNION ALL
        SELECT l.fair_key, f.n + 1 FROM free AS f CROSS JOIN LATERAL (
            SELECT t.fair_key FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = q AND t.fair_key > f.fair_key ORDER BY t.fair_key LIMIT 1
        ) AS l WHERE f.n < most
    ), held (fair_key, n) AS (
        (SELECT t.fair_key, 1 FROM @tasks AS t
         WHERE t.owner IS NOT NULL AND t.queue = q ORDER BY t.fair_key LIMIT 1)
        UNION ALL
        SELECT l.fair_key, h.n + 1 FROM held AS h CROSS JOIN LATERAL (
            SELECT t.fair_key FROM @tasks AS t
            WHERE t.owner IS NOT NULL AND t.queue = q AND t.fair_key > h.fair_key ORDER BY t.fair_key LIMIT 1
        ) AS l WHERE h.n < most
    )
    SELECT o.fair_key FROM (SELECT f.fair_key FROM free AS f UNION SELECT h.fair_key FROM held AS h) AS o
    ORDER BY o.fair_key COLLATE "C" LIMIT most
$$;
