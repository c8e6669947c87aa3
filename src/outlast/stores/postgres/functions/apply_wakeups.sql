-- Wakes the fair keys of a scope that have wake-ups; a key with a new task is moved up to the global pass.
-- Returns whether wake-ups are left: a batch is limited, so that one take after a long idle time stays
-- short.
CREATE OR REPLACE FUNCTION @apply_wakeups(s text, global_pass bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    batch CONSTANT int := 5000;
    applied int;
    qs text[];
    ls text[];
    fs text[];
BEGIN
    WITH gone AS (
        DELETE FROM @fair_key_wakeups AS r WHERE r.ctid = ANY (ARRAY(
            SELECT i.ctid FROM @fair_key_wakeups AS i WHERE i.scope = s LIMIT batch
        ))
        RETURNING r.queue, r.fair_key, r.added, r.freed
    ), once AS (
        SELECT g.queue, g.fair_key, bool_or(g.added) AS added, bool_or(g.freed) AS freed, count(*) AS n
        FROM gone AS g GROUP BY g.queue, g.fair_key
    )
    SELECT array_agg(o.queue) FILTER (WHERE o.added), array_agg(o.fair_key) FILTER (WHERE o.added),
           array_agg(DISTINCT o.fair_key) FILTER (WHERE o.freed), coalesce(sum(o.n), 0)
    INTO qs, ls, fs, applied FROM once AS o;
    IF applied = batch THEN
        -- A new key does not wait until the rest of the wake-ups is applied: a skip scan finds the keys.
        WITH RECURSIVE woken (queue, fair_key, n) AS (
            (SELECT r.queue, r.fair_key, 1 FROM @fair_key_wakeups AS r WHERE r.scope = s
             ORDER BY r.queue, r.fair_key LIMIT 1)
            UNION ALL
            SELECT f.queue, f.fair_key, g.n + 1 FROM woken AS g CROSS JOIN LATERAL (
                SELECT r.queue, r.fair_key FROM @fair_key_wakeups AS r
                WHERE r.scope = s AND (r.queue, r.fair_key) > (g.queue, g.fair_key)
                ORDER BY r.queue, r.fair_key LIMIT 1
            ) AS f WHERE g.n < 1000
        )
        SELECT array_agg(o.queue), array_agg(o.fair_key) INTO qs, ls FROM (
            SELECT g.queue, g.fair_key FROM woken AS g
            UNION
            SELECT u.queue, u.fair_key FROM unnest(qs, ls) AS u (queue, fair_key)
        ) AS o;
    END IF;
    IF qs IS NOT NULL THEN
        INSERT INTO @fair_keys AS l (queue, fair_key, scope, pass)
        SELECT u.queue, u.fair_key, s, coalesce((
            SELECT o.pass FROM @fair_keys AS o WHERE o.scope = s AND o.fair_key = u.fair_key LIMIT 1
        ), global_pass) FROM unnest(qs, ls) AS u (queue, fair_key)
        ON CONFLICT (queue, fair_key) DO UPDATE SET wake_at = NULL WHERE l.wake_at IS NOT NULL;
        UPDATE @fair_keys AS l SET pass = global_pass
        WHERE l.scope = s AND l.fair_key = ANY (ls) AND l.pass < global_pass;
    END IF;
    IF fs IS NOT NULL THEN
        UPDATE @fair_keys AS l SET wake_at = NULL
        WHERE l.scope = s AND l.fair_key = ANY (fs) AND l.wake_at < 9223372036854775807;
    END IF;
    RETURN applied = batch;
END $$;
