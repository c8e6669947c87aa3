-- Puts a key that has no task to hand out, or no capacity, to sleep until time may change that: a delayed
-- task becomes ready, a lease ends, a start leaves the period of the rate.
CREATE OR REPLACE FUNCTION @put_key_to_sleep(now bigint, f @policies, q text, l text, ready int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    until bigint := @next_delayed_at(now, q, l);
    ends bigint;
BEGIN
    SELECT min(coalesce(h.claimed_until, 9223372036854775806)) INTO ends
    FROM @fair_keys AS o CROSS JOIN LATERAL (
        SELECT t.claimed_until FROM @tasks AS t
        WHERE t.owner IS NOT NULL AND t.queue = o.queue AND t.fair_key = o.fair_key
          AND (t.claimed_until IS NULL OR t.claimed_until > now)
        ORDER BY t.claimed_until LIMIT 1
    ) AS h
    WHERE o.scope = f.scope AND o.fair_key = l;
    until := least(until, ends);
    IF ready > 0 AND f.key_rate_limit IS NOT NULL THEN
        until := least(until, (
            SELECT b.at + f.key_rate_per FROM @task_starts AS b
            WHERE b.fair_key <> '' AND b.scope = f.scope AND b.fair_key = l AND b.at > now - f.key_rate_per
            ORDER BY b.at LIMIT 1
        ));
    END IF;
    -- Concurrent transactions may have freed capacity since the count, with a wake-up that was applied
    -- before. Only a key without any task sleeps until one is added.
    IF until IS NULL AND (
        EXISTS (SELECT FROM @tasks AS t WHERE t.owner IS NULL AND t.queue = q AND t.fair_key = l)
        OR EXISTS (SELECT FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue = q AND t.fair_key = l)
    ) THEN
        until := now;
    END IF;
    UPDATE @fair_keys AS o SET wake_at = coalesce(until, 9223372036854775807)
    WHERE o.queue = q AND o.fair_key = l;
END $$;
