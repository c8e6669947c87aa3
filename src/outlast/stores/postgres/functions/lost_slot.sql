-- Whether the lease has ended in a queue that limits concurrency: its slot may have been given away, so the
-- lease cannot be extended even if the task was not taken. Near the end of the lease the policy stays
-- locked until this transaction ends: a concurrent take would not see the longer lease.
CREATE OR REPLACE FUNCTION @lost_slot(a_queue text, until bigint, at bigint, shift bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF until IS NULL OR until > @now(at, shift) + 15000000 THEN
        RETURN false;
    END IF;
    PERFORM FROM @policies AS f
    WHERE f.scope = split_part(a_queue, '/', 1)
      AND (f.concurrency IS NOT NULL OR f.key_concurrency IS NOT NULL)
    FOR SHARE;
    RETURN FOUND AND until <= @now(at, shift);
END $$;
