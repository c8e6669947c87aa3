-- Whether a take may find a task: polling an idle queue takes no lock and writes nothing.
CREATE OR REPLACE FUNCTION @may_have_work(now bigint, s text, own text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    f @policies;
    q text;
BEGIN
    SELECT * INTO f FROM @policies AS t WHERE t.scope = s;
    IF @queue_capacity(now, f) <= 0 THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM @fair_key_wakeups AS r WHERE r.scope = s) THEN
        RETURN true;
    END IF;
    FOREACH q IN ARRAY own LOOP
        IF EXISTS (
            SELECT FROM @fair_keys AS l WHERE l.queue = q AND l.wake_at IS NULL AND l.fair_key <> ''
        ) OR EXISTS (
            SELECT FROM @fair_keys AS l WHERE l.queue = q AND l.wake_at <= now
        ) OR @count_ready_tasks(now, q, '', 1) > 0 THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END $$;
