-- Deletes a run with its descendants; with a life only if that is the one that is there.
CREATE FUNCTION @delete_life_1(run text, life text) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
BEGIN
    PERFORM FROM @runs
    WHERE id = run OR (id > run || '~' AND id < run || chr(127))
    ORDER BY id FOR UPDATE;
    IF life IS NOT NULL AND NOT EXISTS (SELECT FROM @runs WHERE id = run AND uid = life) THEN
        RETURN false;
    END IF;
    RETURN @forget_tree_1(run);
END $$;
