-- How many more tasks the policy allows for the whole queue.
CREATE OR REPLACE FUNCTION @queue_capacity(now bigint, f @policies) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    room bigint := 2147483647;
    n bigint;
BEGIN
    IF f.paused THEN
        RETURN 0;
    END IF;
    IF f.concurrency IS NOT NULL THEN
        SELECT count(*) INTO n FROM (
            SELECT FROM @tasks AS t
            WHERE t.owner IS NOT NULL AND t.queue = f.scope
              AND (t.claimed_until IS NULL OR t.claimed_until > now)
            LIMIT f.concurrency
        ) AS h;
        room := f.concurrency - n;
        SELECT count(*) INTO n FROM (
            SELECT FROM @tasks AS t
            WHERE t.owner IS NOT NULL AND t.queue >= f.scope || '/' AND t.queue < f.scope || '0'
              AND (t.claimed_until IS NULL OR t.claimed_until > now)
            LIMIT f.concurrency
        ) AS h;
        room := room - n;
    END IF;
    IF f.rate_limit IS NOT NULL THEN
        SELECT l.n - (
            SELECT b.n - 1 FROM @task_starts AS b WHERE b.scope = f.scope AND b.at > now - f.rate_per
            ORDER BY b.at, b.n LIMIT 1
        ) INTO n FROM (
            SELECT b.n FROM @task_starts AS b WHERE b.scope = f.scope
            ORDER BY b.at DESC, b.n DESC LIMIT 1
        ) AS l;
        room := least(room, f.rate_limit - coalesce(n, 0));
    END IF;
    RETURN room;
END $$;
