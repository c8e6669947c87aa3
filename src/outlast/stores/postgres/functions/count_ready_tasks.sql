-- How many tasks of a fair key can be handed out, counted up to `n`. The search goes from priority to
-- priority, so that it never reads delayed tasks. (ORDER BY … LIMIT 1, because the planner reads a
-- whole table for min() while it believes the table to be small.)
CREATE OR REPLACE FUNCTION @count_ready_tasks(now bigint, q text, l text, n int) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
    ready int;
    has_delayed boolean;
    level bigint;
BEGIN
    -- Most keys have no delayed task in front.
    SELECT count(*), bool_or(f.ready_at > now) INTO ready, has_delayed FROM (
        SELECT t.ready_at FROM @tasks AS t
        WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l
        ORDER BY t.priority, t.ready_at, t.key LIMIT n
    ) AS f;
    IF ready = n AND NOT has_delayed THEN
        RETURN n;
    END IF;
    SELECT CASE WHEN has_delayed THEN 0 ELSE ready END + count(*) INTO ready FROM (
        SELECT FROM @tasks AS t
        WHERE t.owner IS NOT NULL AND t.queue = q AND t.fair_key = l AND t.claimed_until <= now
          AND t.ready_at <= now
        LIMIT n
    ) AS e;
    IF has_delayed IS NOT TRUE THEN
        RETURN least(ready, n);
    END IF;
    SELECT t.priority INTO level FROM @tasks AS t
    WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l
    ORDER BY t.priority LIMIT 1;
    WHILE level IS NOT NULL AND ready < n LOOP
        SELECT ready + count(*) INTO ready FROM (
            SELECT FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l AND t.priority = level
              AND t.ready_at <= now
            LIMIT n - ready
        ) AS f;
        SELECT t.priority INTO level FROM @tasks AS t
        WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l AND t.priority > level
        ORDER BY t.priority LIMIT 1;
    END LOOP;
    RETURN ready;
END $$;
