-- A page of runs in order. Each search walks the index that narrows it most, in the order of the index, and
-- stops at the limit; other filters are checked on the way. Other plans are switched off: a new table has
-- no statistics, and the plan is cached.
--
-- `moment` and `name` are the cursor: runs created, or last changed, before or after it.
CREATE OR REPLACE FUNCTION @find(
    search text, workflow_list text, statuses text[], parent_id text, hashes bytea[], moment bigint, name text, most int
) RETURNS SETOF @records
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    keys bigint[];
BEGIN
    CASE search
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
              AND (workflow_list IS NULL OR r.workflow = workflow_list) AND (statuses IS NULL OR r.status = ANY (statuses))
              AND (parent_id IS NULL OR r.parent = parent_id)
              AND (hashes = '{}' OR @has_attributes(r.key, hashes))
            ORDER BY r.created_at, r.id
            LIMIT most
        );
    WHEN 'workflow' THEN
        -- The index has workflow and status first: the newest of each pair, merged.
        keys := ARRAY(
            WITH RECURSIVE named (workflow) AS (
                SELECT coalesce(workflow_list, (SELECT r.workflow FROM @runs AS r ORDER BY r.workflow LIMIT 1))
                UNION ALL
                SELECT (
                    SELECT r.workflow FROM @runs AS r WHERE r.workflow > named.workflow
                    ORDER BY r.workflow LIMIT 1
                )
                FROM named
                WHERE named.workflow IS NOT NULL AND workflow_list IS NULL
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
            WHERE r.parent = parent_id AND (r.created_at, r.id) < (moment, name)
              AND (workflow_list IS NULL OR r.workflow = workflow_list) AND (statuses IS NULL OR r.status = ANY (statuses))
              AND (hashes = '{}' OR @has_attributes(r.key, hashes))
            ORDER BY r.created_at DESC, r.id DESC
            LIMIT most
        );
    WHEN 'attributed' THEN
        keys := ARRAY(
            SELECT r.key FROM @attributes AS b JOIN @runs AS r ON r.key = b.run_key
            WHERE b.hash = hashes[1] AND b.created_at <= moment
              AND (r.created_at, r.id) < (moment, name)
              AND (workflow_list IS NULL OR r.workflow = workflow_list) AND (statuses IS NULL OR r.status = ANY (statuses))
              AND (cardinality(hashes) = 1 OR @has_attributes(r.key, hashes))
            ORDER BY b.created_at DESC, r.id DESC
            LIMIT most
        );
    -- `idle_since` indexes unclaimed runs by their last change. The claimed ones are few and are scanned.
    WHEN '-updated' THEN
        keys := ARRAY(
            SELECT f.key FROM (
                (SELECT r.key, r.updated_at, r.id FROM @runs AS r
                WHERE r.idle_since IS NOT NULL AND (r.idle_since, r.id) < (moment, name)
                  AND (workflow_list IS NULL OR r.workflow = workflow_list)
                  AND (statuses IS NULL OR r.status = ANY (statuses)) AND (parent_id IS NULL OR r.parent = parent_id)
                  AND (hashes = '{}' OR @has_attributes(r.key, hashes))
                ORDER BY r.idle_since DESC, r.id DESC
                LIMIT most)
                UNION ALL
                (SELECT r.key, r.updated_at, r.id FROM @runs AS r
                WHERE r.owner IS NOT NULL AND (r.updated_at, r.id) < (moment, name)
                  AND (workflow_list IS NULL OR r.workflow = workflow_list)
                  AND (statuses IS NULL OR r.status = ANY (statuses)) AND (parent_id IS NULL OR r.parent = parent_id)
                  AND (hashes = '{}' OR @has_attributes(r.key, hashes))
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
                WHERE r.idle_since IS NOT NULL AND (r.idle_since, r.id) > (moment, name)
                  AND (workflow_list IS NULL OR r.workflow = workflow_list)
                  AND (statuses IS NULL OR r.status = ANY (statuses)) AND (parent_id IS NULL OR r.parent = parent_id)
                  AND (hashes = '{}' OR @has_attributes(r.key, hashes))
                ORDER BY r.idle_since, r.id
                LIMIT most)
                UNION ALL
                (SELECT r.key, r.updated_at, r.id FROM @runs AS r
                WHERE r.owner IS NOT NULL AND (r.updated_at, r.id) > (moment, name)
                  AND (workflow_list IS NULL OR r.workflow = workflow_list)
                  AND (statuses IS NULL OR r.status = ANY (statuses)) AND (parent_id IS NULL OR r.parent = parent_id)
                  AND (hashes = '{}' OR @has_attributes(r.key, hashes))
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
