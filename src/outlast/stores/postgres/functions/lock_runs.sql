-- Locks existing runs, waiting up to `ms` milliseconds in total, in order of their ids against deadlock.
-- A run that stays locked is reported as busy by the caller's next statement.
CREATE OR REPLACE FUNCTION @lock_runs(ids text[], ms int) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    deadline timestamptz := clock_timestamp() + ms * interval '1 millisecond';
    run text;
    ms_left int;
BEGIN
    FOR run IN SELECT DISTINCT u.id COLLATE "C" AS id FROM unnest(ids) AS u (id) ORDER BY 1 LOOP
        PERFORM FROM @runs AS r WHERE r.id = run FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN FOUND;
        ms_left := 1000 * extract(epoch FROM deadline - clock_timestamp());
        EXIT WHEN ms_left < 1;
        PERFORM set_config('lock_timeout', ms_left || 'ms', true);
        BEGIN
            PERFORM FROM @runs AS r WHERE r.id = run FOR UPDATE;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            RETURN false;
        END;
    END LOOP;
    RETURN true;
END $$;
