-- Claims up to `most` runnable runs, longest due first. Candidates are found by index, then locked without
-- waiting. A candidate that another claimer took is replaced in the next round, so that concurrent
-- claimers share the runs.
CREATE OR REPLACE FUNCTION @claim_runs(
    at bigint, shift bigint, a_owner text, ttl bigint, most int, workflows text[], run_ids text[],
    code text
) RETURNS SETOF @records
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now(at, shift);
    searched text[] := workflows;  -- where free runs are searched; not a filter
    tried bigint[] := '{}';
    found_keys bigint[];
    claimed bigint[] := '{}';
    round int := 0;
BEGIN
    IF run_ids IS NULL AND workflows IS NULL THEN
        -- The workflows that have free runs: a skip scan, two seeks a workflow.
        WITH RECURSIVE workflow_list (workflow) AS (
            (SELECT r.workflow FROM @runs AS r
             WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL
             ORDER BY r.workflow LIMIT 1)
            UNION ALL
            SELECT (
                SELECT r.workflow FROM @runs AS r
                WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL
                  AND r.workflow > workflow_list.workflow
                ORDER BY r.workflow LIMIT 1
            ) FROM workflow_list WHERE workflow_list.workflow IS NOT NULL
        )
        SELECT array_agg(s.workflow) INTO searched FROM workflow_list AS s WHERE s.workflow IS NOT NULL;
    END IF;
    WHILE cardinality(claimed) < most AND round < 20 LOOP
        round := round + 1;
        IF run_ids IS NOT NULL THEN
            SELECT array_agg(f.key) INTO found_keys FROM (
                SELECT r.key FROM @runs AS r
                WHERE r.id = ANY (run_ids) AND NOT r.key = ANY (tried)
                  AND (workflows IS NULL OR r.workflow = ANY (workflows))
                  AND r.status NOT IN ('completed', 'failed', 'cancelled')
                  AND (r.owner IS NULL OR r.claimed_until IS NULL OR r.claimed_until <= now)
                ORDER BY coalesce(r.runnable_at, 0), r.id
                LIMIT most - cardinality(claimed)
            ) AS f;
        ELSE
            SELECT array_agg(f.key) INTO found_keys FROM (
                SELECT u.key FROM (
                    -- Expired leases. The old owner may still write until the run is taken over.
                    (SELECT r.key, r.runnable_at, r.id FROM @runs AS r
                     WHERE r.owner IS NOT NULL AND r.claimed_until <= now AND r.runnable_at <= now
                       AND r.status NOT IN ('completed', 'failed', 'cancelled')
                       AND NOT r.key = ANY (tried)
                       AND (code IS NULL OR r.wait_kind IN ('mismatch', 'bug')
                            OR NOT @was_rejected(r.key, code))
                       -- `|| ''` keeps the planner from an index on workflow.
                       AND (workflows IS NULL OR r.workflow || '' = ANY (workflows)))
                    UNION ALL
                    (SELECT f.key, f.runnable_at, f.id
                     FROM unnest(searched) AS s (workflow) CROSS JOIN LATERAL (
                         SELECT r.key, r.runnable_at, r.id FROM @runs AS r
                         WHERE r.workflow = s.workflow AND r.runnable_at IS NOT NULL
                           AND r.runnable_at <= now AND r.owner IS NULL
                           AND r.status NOT IN ('completed', 'failed', 'cancelled')
                           AND NOT r.key = ANY (tried)
                           AND (code IS NULL OR r.wait_kind IN ('mismatch', 'bug')
                                OR NOT @was_rejected(r.key, code))
                         ORDER BY r.runnable_at, r.id
                         LIMIT most - cardinality(claimed)
                     ) AS f)
                ) AS u
                ORDER BY u.runnable_at, u.id
                LIMIT most - cardinality(claimed)
            ) AS f;
        END IF;
        EXIT WHEN found_keys IS NULL;
        tried := tried || found_keys;
        WITH mine AS (
            SELECT r.key FROM @runs AS r
            WHERE r.key = ANY (found_keys)
              AND (run_ids IS NOT NULL OR r.runnable_at <= now)
              AND (workflows IS NULL OR r.workflow = ANY (workflows))
              AND r.status NOT IN ('completed', 'failed', 'cancelled')
              AND (r.owner IS NULL OR r.claimed_until IS NULL OR r.claimed_until <= now)
              AND (run_ids IS NOT NULL OR code IS NULL OR r.wait_kind IN ('mismatch', 'bug')
                   OR NOT @was_rejected(r.key, code))
            FOR UPDATE SKIP LOCKED
        ), updated AS (
            UPDATE @runs AS r
            SET owner = a_owner, token = nextval('@tokens'), claimed_until = now + ttl
            FROM mine WHERE r.key = mine.key
            RETURNING r.key
        )
        SELECT claimed || coalesce(array_agg(u.key), '{}') INTO claimed FROM updated AS u;
    END LOOP;
    IF cardinality(claimed) > 0 THEN
        RETURN QUERY SELECT v.* FROM @records AS v WHERE v.key = ANY (claimed);
    END IF;
END $$;
