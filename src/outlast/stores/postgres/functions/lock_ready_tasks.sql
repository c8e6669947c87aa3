-- Locks the first `n` tasks of a fair key, in no order, and up to `n` more whose lease has ended: those keep
-- their old position. With ageing `n` of each priority: any of them may be the most urgent.
CREATE OR REPLACE FUNCTION @lock_ready_tasks(now bigint, q text, l text, n int, ages boolean) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    ks bigint[];
    more bigint[];
    free int := 0;
    level bigint;
    has_delayed boolean;
BEGIN
    ks := ARRAY(
        SELECT t.key FROM @tasks AS t
        WHERE t.owner IS NOT NULL AND t.queue = q AND t.fair_key = l AND t.claimed_until <= now
          AND t.ready_at <= now
        ORDER BY t.priority, t.ready_at, t.key
        LIMIT CASE WHEN ages THEN NULL ELSE n END FOR UPDATE SKIP LOCKED
    );
    IF NOT ages THEN
        -- Most keys have no delayed task in front.
        SELECT coalesce(array_agg(f.key), '{}'), bool_or(f.ready_at > now) INTO more, has_delayed FROM (
            SELECT t.key, t.ready_at FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l
            ORDER BY t.priority, t.ready_at, t.key LIMIT n FOR UPDATE SKIP LOCKED
        ) AS f;
        IF has_delayed IS NOT TRUE THEN
            RETURN ks || more;
        END IF;
    END IF;
    SELECT t.priority INTO level FROM @tasks AS t
    WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l
    ORDER BY t.priority LIMIT 1;
    WHILE level IS NOT NULL AND (free < n OR ages) LOOP
        more := ARRAY(
            SELECT t.key FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l AND t.priority = level
              AND t.ready_at <= now
            ORDER BY t.ready_at, t.key
            LIMIT CASE WHEN ages THEN n ELSE n - free END FOR UPDATE SKIP LOCKED
        );
        ks := ks || more;
        free := free + cardinality(more);
        EXIT WHEN free >= n AND NOT ages;
        SELECT t.priority INTO level FROM @tasks AS t
        WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l AND t.priority > level
        ORDER BY t.priority LIMIT 1;
    END LOOP;
    RETURN ks;
END $$;
