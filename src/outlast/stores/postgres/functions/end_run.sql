-- Ends a run: no owner, no wake-up, no open work.
CREATE OR REPLACE FUNCTION @end_run(now bigint, k bigint, run text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @runs SET runnable_at = NULL, owner = NULL, claimed_until = NULL,
                     ended_at = coalesce(ended_at, now)
    WHERE key = k;
    PERFORM @delete_open_work(ARRAY[k], ARRAY[run]);
END $$;
