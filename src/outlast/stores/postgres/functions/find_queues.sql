-- The queues with tasks, live or dead, whose names are from `first` up to `last` (exclusive): two seeks each.
CREATE OR REPLACE FUNCTION @find_queues(first text, last text) RETURNS TABLE (queue text)
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
