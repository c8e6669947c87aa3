-- How many more tasks the policy allows for a key.
CREATE OR REPLACE FUNCTION @key_capacity(now bigint, f @policies, l text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    room bigint := 2147483647;
    n bigint;
BEGIN
    IF f.key_concurrency IS NOT NULL THEN
        SELECT count(*) INTO n FROM (
            SELECT FROM @fair_keys AS o JOIN @tasks AS t ON t.queue = o.queue AND t.fair_key = o.fair_key
            WHERE o.scope = f.scope AND o.fair_key = l AND t.owner IS NOT NULL
              AND (t.claimed_until IS NULL OR t.claimed_until > now)
            LIMIT f.key_concurrency
        ) AS h;
        room := f.key_concurrency - n;
    END IF;
    IF f.key_rate_limit IS NOT NULL THEN
        SELECT last.m - (
            SELECT b.m - 1 FROM @task_starts AS b
            WHERE b.fair_key <> '' AND b.scope = f.scope AND b.fair_key = l AND b.at > now - f.key_rate_per
            ORDER BY b.at, b.m LIMIT 1
        ) INTO n FROM (
            SELECT b.m FROM @task_starts AS b
            WHERE b.fair_key <> '' AND b.scope = f.scope AND b.fair_key = l
            ORDER BY b.at DESC, b.m DESC LIMIT 1
        ) AS last;
        room := least(room, f.key_rate_limit - coalesce(n, 0));
    END IF;
    RETURN room;
END $$;
