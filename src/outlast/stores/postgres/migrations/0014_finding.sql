-- Whether a run has all of these attributes.
CREATE FUNCTION @is_marked_1(a_key bigint, marks bytea[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM unnest(marks) AS m (mark)
        WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = a_key AND a.mark = m.mark)
    );
END $$;

-- Which runs, a page of them in order. Each way walks the index that narrows the search most, in the order
-- of the index, and stops at the limit; the other filters are looked at on the way. That is so whatever
-- the server believes to be in the tables: what it would rather do is switched off, because a table that
-- nobody has analysed yet tells it nothing, and a plan is made once.
--
-- `moment` and `name` are the cursor: what was created, or last changed, before or after that.
CREATE FUNCTION @find_1(
    way text, shelf text, statuses text[], above text, marks bytea[], moment bigint, name text, most int
) RETURNS SETOF @records
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    keys bigint[];
BEGIN
    CASE way
    WHEN '-created' THEN
        keys := ARRAY(
            SELECT r.key FROM @runs AS r
            WHERE (r.created_at, r.id) < (moment, name)
            ORDER BY r.created_at DESC, r.id DESC
            LIMIT most
        );
    WHEN 'created' THEN
        keys := ARRAY(
            SELECT r.key FROM @runs AS r
            WHERE (r.created_at, r.id) > (moment, name)
              AND (shelf IS NULL OR r.workflow = shelf) AND (statuses IS NULL OR r.status = ANY (statuses))
              AND (above IS NULL OR r.parent = above)
              AND (marks = '{}' OR @is_marked_1(r.key, marks))
            ORDER BY r.created_at, r.id
            LIMIT most
        );
    WHEN 'filed' THEN
        -- Runs are filed by workflow and status: the newest of the files that are asked for, merged.
        keys := ARRAY(
            WITH RECURSIVE named (workflow) AS (
                SELECT coalesce(shelf, (SELECT r.workflow FROM @runs AS r ORDER BY r.workflow LIMIT 1))
                UNION ALL
                SELECT (
                    SELECT r.workflow FROM @runs AS r WHERE r.workflow > named.workflow
                    ORDER BY r.workflow LIMIT 1
                )
                FROM named
                WHERE named.workflow IS NOT NULL AND shelf IS NULL
            )
            SELECT f.key FROM named CROSS JOIN unnest(statuses) AS s (status) CROSS JOIN LATERAL (
                SELECT r.key, r.created_at, r.id FROM @runs AS r
                WHERE r.workflow = named.workflow AND r.status = s.status
                  AND (r.created_at, r.id) < (moment, name)
                ORDER BY r.created_at DESC, r.id DESC
                LIMIT most
            ) AS f
            WHERE named.workflow IS NOT NULL
            ORDER BY f.created_at DESC, f.id DESC
            LIMIT most
        );
    WHEN 'children' THEN
        keys := ARRAY(
            SELECT r.key FROM @runs AS r
            WHERE r.parent = above AND (r.created_at, r.id) < (moment, name)
              AND (shelf IS NULL OR r.workflow = shelf) AND (statuses IS NULL OR r.status = ANY (statuses))
              AND (marks = '{}' OR @is_marked_1(r.key, marks))
            ORDER BY r.created_at DESC, r.id DESC
            LIMIT most
        );
    WHEN 'attributed' THEN
        keys := ARRAY(
            SELECT r.key FROM @attributes AS b JOIN @runs AS r ON r.key = b.run_key
            WHERE b.mark = marks[1] AND b.created_at <= moment
              AND (r.created_at, r.id) < (moment, name)
              AND (shelf IS NULL OR r.workflow = shelf) AND (statuses IS NULL OR r.status = ANY (statuses))
              AND (cardinality(marks) = 1 OR @is_marked_1(r.key, marks))
            ORDER BY b.created_at DESC, r.id DESC
            LIMIT most
        );
    -- By their last change runs are indexed while nobody holds them. Those that are held are few, and
    -- looked at one by one.
    WHEN '-updated' THEN
        keys := ARRAY(
            SELECT f.key FROM (
                (SELECT r.key, r.updated_at, r.id FROM @runs AS r
                WHERE r.rested_at IS NOT NULL AND (r.rested_at, r.id) < (moment, name)
                  AND (shelf IS NULL OR r.workflow = shelf)
                  AND (statuses IS NULL OR r.status = ANY (statuses)) AND (above IS NULL OR r.parent = above)
                  AND (marks = '{}' OR @is_marked_1(r.key, marks))
                ORDER BY r.rested_at DESC, r.id DESC
                LIMIT most)
                UNION ALL
                (SELECT r.key, r.updated_at, r.id FROM @runs AS r
                WHERE r.owner IS NOT NULL AND (r.updated_at, r.id) < (moment, name)
                  AND (shelf IS NULL OR r.workflow = shelf)
                  AND (statuses IS NULL OR r.status = ANY (statuses)) AND (above IS NULL OR r.parent = above)
                  AND (marks = '{}' OR @is_marked_1(r.key, marks))
                ORDER BY r.updated_at DESC, r.id DESC
                LIMIT most)
            ) AS f
            ORDER BY f.updated_at DESC, f.id DESC
            LIMIT most
        );
    WHEN 'updated' THEN
        keys := ARRAY(
            SELECT f.key FROM (
                (SELECT r.key, r.updated_at, r.id FROM @runs AS r
                WHERE r.rested_at IS NOT NULL AND (r.rested_at, r.id) > (moment, name)
                  AND (shelf IS NULL OR r.workflow = shelf)
                  AND (statuses IS NULL OR r.status = ANY (statuses)) AND (above IS NULL OR r.parent = above)
                  AND (marks = '{}' OR @is_marked_1(r.key, marks))
                ORDER BY r.rested_at, r.id
                LIMIT most)
                UNION ALL
                (SELECT r.key, r.updated_at, r.id FROM @runs AS r
                WHERE r.owner IS NOT NULL AND (r.updated_at, r.id) > (moment, name)
                  AND (shelf IS NULL OR r.workflow = shelf)
                  AND (statuses IS NULL OR r.status = ANY (statuses)) AND (above IS NULL OR r.parent = above)
                  AND (marks = '{}' OR @is_marked_1(r.key, marks))
                ORDER BY r.updated_at, r.id
                LIMIT most)
            ) AS f
            ORDER BY f.updated_at, f.id
            LIMIT most
        );
    END CASE;
    RETURN QUERY
    SELECT v.* FROM unnest(keys) WITH ORDINALITY AS f (key, n)
    CROSS JOIN LATERAL (SELECT * FROM @records AS v WHERE v.key = f.key LIMIT 1) AS v
    ORDER BY f.n;
END $$;
