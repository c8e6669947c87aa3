-- Deletes trees whose root ended before a time, oldest first, if no ancestor or descendant is open. A run
-- that is being moved to another store counts as open: it may not have arrived.
CREATE OR REPLACE FUNCTION @expire(before bigint, statuses text[], most int) RETURNS SETOF text
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    root text;
BEGIN
    FOR root IN
        SELECT r.id FROM @runs AS r
        WHERE r.ended_at IS NOT NULL AND r.ended_at < before AND strpos(r.id, '~') = 0
          AND (statuses IS NULL OR r.status = ANY (statuses))
          AND @is_finished(r.status, r.wait_kind)
          AND NOT EXISTS (
              SELECT FROM @runs AS p WHERE p.id = r.parent AND NOT @is_finished(p.status, p.wait_kind)
          )
          AND NOT EXISTS (
              SELECT FROM @runs AS c
              WHERE c.id > r.id || '~' AND c.id < r.id || chr(127)
                AND NOT @is_finished(c.status, c.wait_kind)
          )
        ORDER BY r.ended_at, r.id
        LIMIT most
    LOOP
        -- A replaced child may be open again since the search.
        IF @lock_tree(root) AND NOT EXISTS (
            SELECT FROM @runs AS r
            WHERE (r.id = root OR (r.id > root || '~' AND r.id < root || chr(127)))
              AND NOT @is_finished(r.status, r.wait_kind)
        ) THEN
            IF @delete_tree(root) THEN
                RETURN NEXT root;
            END IF;
        END IF;
    END LOOP;
END $$;
