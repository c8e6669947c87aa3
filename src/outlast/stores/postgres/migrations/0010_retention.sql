-- Retention leaves alone what is being moved.

-- Removes trees whose root ended before a time, oldest first, with nothing alive above or below.
-- What is being moved to another store is closed, but may not be there yet: it counts as alive.
CREATE OR REPLACE FUNCTION @expire_1(before bigint, statuses text[], most int) RETURNS SETOF text
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
          AND NOT (r.status = 'cancelled' AND r.wait_kind IS NOT DISTINCT FROM 'moving')
          AND NOT EXISTS (
              SELECT FROM @runs AS p
              WHERE p.id = r.parent AND (p.status NOT IN ('completed', 'failed', 'cancelled')
                OR (p.status = 'cancelled' AND p.wait_kind IS NOT DISTINCT FROM 'moving'))
          )
          AND NOT EXISTS (
              SELECT FROM @runs AS c
              WHERE c.id > r.id || '~' AND c.id < r.id || chr(127)
                AND (c.status NOT IN ('completed', 'failed', 'cancelled')
                  OR (c.status = 'cancelled' AND c.wait_kind IS NOT DISTINCT FROM 'moving'))
          )
        ORDER BY r.ended_at, r.id
        LIMIT most
    LOOP
        -- A child may have been replaced by a live one since; an ended run never comes back alive
        -- but by a replacement.
        IF @lock_tree_1(root) AND NOT EXISTS (
            SELECT FROM @runs AS r
            WHERE (r.id = root OR (r.id > root || '~' AND r.id < root || chr(127)))
              AND (r.status NOT IN ('completed', 'failed', 'cancelled')
                OR (r.status = 'cancelled' AND r.wait_kind IS NOT DISTINCT FROM 'moving'))
        ) THEN
            IF @forget_tree_1(root) THEN
                RETURN NEXT root;
            END IF;
        END IF;
    END LOOP;
END $$;
