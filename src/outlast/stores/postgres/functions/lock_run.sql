-- Locks a run if it exists, waiting up to one second. Returns false on timeout.
CREATE OR REPLACE FUNCTION @lock_run(run text) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM FROM @runs WHERE id = run FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM @runs WHERE id = run FOR UPDATE;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;
