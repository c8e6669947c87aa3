-- Deletes a run with its descendants; with `life` only if that is the current one. With `only_ended`
-- nothing is deleted if a run has not ended, unless its last commit is the one that the caller has seen
-- (NULL: any): then `alive` has their ids. `sends` are delivered if the tree is deleted.
CREATE OR REPLACE FUNCTION @delete(
    at bigint, shift bigint, run text, life text, only_ended boolean, seen_run text[], seen_commit text[],
    sends text, blobs bytea[], OUT gone boolean, OUT alive text[]
)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint;
    x record;
BEGIN
    gone := false;
    alive := '{}';
    PERFORM FROM @runs
    WHERE id = ANY (ARRAY(SELECT s.run FROM jsonb_to_recordset(sends::jsonb) AS s (run text)))
    ORDER BY id FOR UPDATE;
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
              AND NOT @is_finished(r.status, r.wait_kind)
              AND NOT EXISTS (
                  SELECT FROM unnest(seen_run, seen_commit) AS s (id, commit_id)
                  WHERE s.id = r.id AND coalesce(s.commit_id, r.commit_id) = r.commit_id
              )
            ORDER BY r.id LIMIT 100
        ) AS t;
        IF alive <> '{}' THEN
            RETURN;
        END IF;
    END IF;
    gone := @delete_tree(run);
    now := @now(at, shift);
    FOR x IN
        SELECT * FROM jsonb_to_recordset(sends::jsonb)
            AS s (run text, uid text, id text, kind text, name text, sender text, data int)
    LOOP
        PERFORM @deliver_item(now, x.run, x.uid, x.id, x.kind, x.name, x.sender, blobs[x.data]);
    END LOOP;
END $$;
