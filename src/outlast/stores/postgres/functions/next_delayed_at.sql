-- When the next delayed task of a key becomes ready, or NULL.
CREATE OR REPLACE FUNCTION @next_delayed_at(now bigint, q text, l text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    due bigint;
    level bigint;
BEGIN
    SELECT t.priority INTO level FROM @tasks AS t
    WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l
    ORDER BY t.priority LIMIT 1;
    WHILE level IS NOT NULL LOOP
        due := least(due, (
            SELECT t.ready_at FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l AND t.priority = level
              AND t.ready_at > now
            ORDER BY t.ready_at LIMIT 1
        ));
        SELECT t.priority INTO level FROM @tasks AS t
        WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l AND t.priority > level
        ORDER BY t.priority LIMIT 1;
    END LOOP;
    RETURN due;
END $$;
