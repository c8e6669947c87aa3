-- Locks a run and its descendants, or only the finished ones, without waiting. Returns false if another
-- transaction holds one of them.
CREATE OR REPLACE FUNCTION @lock_tree(run text, only_finished boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    held bigint[];
BEGIN
    SELECT coalesce(array_agg(key), '{}') INTO held FROM (
        SELECT key FROM @runs
        WHERE (id = run OR (id > run || '~' AND id < run || chr(127)))
          AND (NOT only_finished OR id = run OR @is_finished(status, wait_kind))
        ORDER BY id FOR UPDATE SKIP LOCKED
    ) AS mine;
    -- Locked rows cannot go away, so that comparing the counts is enough.
    RETURN cardinality(held) = (
        SELECT count(*) FROM @runs
        WHERE (id = run OR (id > run || '~' AND id < run || chr(127)))
          AND (NOT only_finished OR id = run OR @is_finished(status, wait_kind))
    );
END $$;
