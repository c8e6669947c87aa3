-- Deletes a run with its descendants; with a life only if that is the one that is there. With
-- `only_ended` nothing is deleted if one of them has not ended: their ids are the answer.
CREATE FUNCTION @delete_life_1(
    run text, life text, only_ended boolean, OUT gone boolean, OUT alive text[]
)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
BEGIN
    gone := false;
    alive := '{}';
    PERFORM FROM @runs
    WHERE id = run OR (id > run || '~' AND id < run || chr(127))
    ORDER BY id FOR UPDATE;
    IF life IS NOT NULL AND NOT EXISTS (SELECT FROM @runs WHERE id = run AND uid = life) THEN
        RETURN;
    END IF;
    IF only_ended THEN
        SELECT coalesce(array_agg(t.id), '{}') INTO alive FROM (
            SELECT r.id FROM @runs AS r
            WHERE (r.id = run OR (r.id > run || '~' AND r.id < run || chr(127)))
              AND NOT @is_over_1(r.status, r.wait_kind)
            ORDER BY r.id LIMIT 100
        ) AS t;
        IF alive <> '{}' THEN
            RETURN;
        END IF;
    END IF;
    gone := @forget_tree_1(run);
END $$;
