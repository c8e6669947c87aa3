-- Who may advance a run or do a task.

-- Whether code could not go on with a run before.
CREATE FUNCTION @was_rejected_1(k bigint, a_code text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT strpos(d.rejected_by, a_code) > 0 FROM @run_details AS d WHERE d.key = k), false
    )
$$;

-- Claims up to `most` runs that are available, those due longest first. Candidates are found by
-- index and then locked without waiting; what somebody else took meanwhile is made up for by the
-- next round, so that claimers who come together share out what there is.
CREATE FUNCTION @claim_runs_1(
    at bigint, shift bigint, a_owner text, ttl bigint, most int, shelves text[], wanted text[],
    a_code text
) RETURNS SETOF @records
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    searched text[] := shelves;  -- workflows in which free runs are looked for; it filters nothing
    tried bigint[] := '{}';
    found_keys bigint[];
    claimed bigint[] := '{}';
    round int := 0;
BEGIN
    IF wanted IS NULL AND shelves IS NULL THEN
        -- The workflows that have free runs: a skip scan, two seeks a workflow.
        WITH RECURSIVE shelf (workflow) AS (
            (SELECT r.workflow FROM @runs AS r
             WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL
             ORDER BY r.workflow LIMIT 1)
            UNION ALL
            SELECT (
                SELECT r.workflow FROM @runs AS r
                WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL
                  AND r.workflow > shelf.workflow
                ORDER BY r.workflow LIMIT 1
            ) FROM shelf WHERE shelf.workflow IS NOT NULL
        )
        SELECT array_agg(s.workflow) INTO searched FROM shelf AS s WHERE s.workflow IS NOT NULL;
    END IF;
    WHILE cardinality(claimed) < most AND round < 20 LOOP
        round := round + 1;
        IF wanted IS NOT NULL THEN
            SELECT array_agg(f.key) INTO found_keys FROM (
                SELECT r.key FROM @runs AS r
                WHERE r.id = ANY (wanted) AND NOT r.key = ANY (tried)
                  AND (shelves IS NULL OR r.workflow = ANY (shelves))
                  AND r.status NOT IN ('completed', 'failed', 'cancelled')
                  AND (r.owner IS NULL OR r.claimed_until IS NULL OR r.claimed_until <= now)
                ORDER BY coalesce(r.runnable_at, 0), r.id
                LIMIT most - cardinality(claimed)
            ) AS f;
        ELSE
            SELECT array_agg(f.key) INTO found_keys FROM (
                SELECT u.key FROM (
                    -- Whose owner let the lease run out. They stay owned until somebody takes
                    -- them: the old owner may still write if nobody does.
                    (SELECT r.key, r.runnable_at, r.id FROM @runs AS r
                     WHERE r.owner IS NOT NULL AND r.claimed_until <= now AND r.runnable_at <= now
                       AND r.status NOT IN ('completed', 'failed', 'cancelled')
                       AND NOT r.key = ANY (tried)
                       AND (a_code IS NULL OR r.wait_kind = 'mismatch'
                            OR NOT @was_rejected_1(r.key, a_code))
                       -- Dressed up, so that no index of workflows is taken for it.
                       AND (shelves IS NULL OR r.workflow || '' = ANY (shelves)))
                    UNION ALL
                    (SELECT f.key, f.runnable_at, f.id
                     FROM unnest(searched) AS s (workflow) CROSS JOIN LATERAL (
                         SELECT r.key, r.runnable_at, r.id FROM @runs AS r
                         WHERE r.workflow = s.workflow AND r.runnable_at IS NOT NULL
                           AND r.runnable_at <= now AND r.owner IS NULL
                           AND r.status NOT IN ('completed', 'failed', 'cancelled')
                           AND NOT r.key = ANY (tried)
                           AND (a_code IS NULL OR r.wait_kind = 'mismatch'
                                OR NOT @was_rejected_1(r.key, a_code))
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
              AND (wanted IS NOT NULL OR r.runnable_at <= now)
              AND (shelves IS NULL OR r.workflow = ANY (shelves))
              AND r.status NOT IN ('completed', 'failed', 'cancelled')
              AND (r.owner IS NULL OR r.claimed_until IS NULL OR r.claimed_until <= now)
              AND (wanted IS NOT NULL OR a_code IS NULL OR r.wait_kind = 'mismatch'
                   OR NOT @was_rejected_1(r.key, a_code))
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

-- Whether a claim still holds a task: '' if so, and then the row is locked.
CREATE FUNCTION @hold_task_1(a_place bytea, a_token bigint) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM @tasks AS t
    WHERE t.place = a_place AND t.owner IS NOT NULL AND t.token = a_token
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN '';
    END IF;
    PERFORM FROM @tasks AS t
    WHERE t.place = a_place AND t.owner IS NOT NULL AND t.token = a_token;
    RETURN CASE WHEN FOUND THEN 'busy' ELSE 'lost' END;
END $$;

-- Sets leases to `ttl` from now. A row for each claim that was not lost; `extended` is false where
-- somebody has locked the row: nobody can take it over meanwhile, and nobody waits for the lock.
CREATE FUNCTION @renew_1(
    at bigint, shift bigint, ttl bigint, r_id text[], r_uid text[], r_token bigint[],
    t_place bytea[], t_token bigint[]
) RETURNS TABLE (subject text, place bytea, given bigint, until bigint, extended boolean)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    held bigint[];
BEGIN
    until := now + ttl;
    SELECT coalesce(array_agg(m.key), '{}') INTO held
    FROM unnest(r_id, r_uid, r_token) AS c (id, uid, token) CROSS JOIN LATERAL (
        SELECT r.key FROM @runs AS r
        WHERE r.id = c.id AND r.uid = c.uid AND r.token = c.token AND r.owner IS NOT NULL
        FOR UPDATE SKIP LOCKED
    ) AS m;
    UPDATE @runs AS r SET claimed_until = now + ttl WHERE r.key = ANY (held);
    FOR subject, given, extended IN
        SELECT m.id, m.token, m.key = ANY (held)
        FROM unnest(r_id, r_uid, r_token) AS c (id, uid, token) CROSS JOIN LATERAL (
            SELECT r.id, r.token, r.key FROM @runs AS r
            WHERE r.id = c.id AND r.uid = c.uid AND r.token = c.token AND r.owner IS NOT NULL
            OFFSET 0
        ) AS m
    LOOP
        RETURN NEXT;
    END LOOP;
    subject := NULL;
    SELECT coalesce(array_agg(m.key), '{}') INTO held
    FROM unnest(t_place, t_token) AS c (place, token) CROSS JOIN LATERAL (
        SELECT t.key FROM @tasks AS t
        WHERE t.place = c.place AND t.token = c.token AND t.owner IS NOT NULL
          AND NOT @gave_place_1(t.queue, t.claimed_until, at, shift)
        FOR UPDATE SKIP LOCKED
    ) AS m;
    UPDATE @tasks AS t SET claimed_until = now + ttl
    WHERE t.key = ANY (held) AND t.claimed_until IS NOT NULL;
    FOR place, given, extended IN
        SELECT m.place, m.token, m.key = ANY (held)
        FROM unnest(t_place, t_token) AS c (place, token) CROSS JOIN LATERAL (
            SELECT t.place, t.token, t.key FROM @tasks AS t
            WHERE t.place = c.place AND t.token = c.token AND t.owner IS NOT NULL
              AND NOT @gave_place_1(t.queue, t.claimed_until, at, shift)
            OFFSET 0
        ) AS m
    LOOP
        RETURN NEXT;
    END LOOP;
END $$;

-- Gives claims back, which come sorted; a row for each that was not lost. It waits for locks: a claim that stays would
-- keep others waiting for its lease.
CREATE FUNCTION @release_1(
    r_id text[], r_uid text[], r_token bigint[], t_place bytea[], t_token bigint[]
) RETURNS TABLE (subject text, place bytea, given bigint)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET lock_timeout = '2s' AS $$
DECLARE
    held bigint[];
BEGIN
    SELECT coalesce(array_agg(m.key), '{}') INTO held
    FROM unnest(r_id, r_uid, r_token) AS c (id, uid, token) CROSS JOIN LATERAL (
        SELECT r.key FROM @runs AS r
        WHERE r.id = c.id AND r.uid = c.uid AND r.token = c.token AND r.owner IS NOT NULL
        FOR UPDATE
    ) AS m;
    FOR subject, given IN
        UPDATE @runs AS r SET owner = NULL, claimed_until = NULL WHERE r.key = ANY (held)
        RETURNING r.id, r.token
    LOOP
        RETURN NEXT;
    END LOOP;
    subject := NULL;
    SELECT coalesce(array_agg(m.key), '{}') INTO held
    FROM unnest(t_place, t_token) AS c (place, token) CROSS JOIN LATERAL (
        SELECT t.key FROM @tasks AS t
        WHERE t.place = c.place AND t.token = c.token AND t.owner IS NOT NULL
        FOR UPDATE
    ) AS m;
    FOR place, given IN
        UPDATE @tasks AS t SET owner = NULL, claimed_until = NULL WHERE t.key = ANY (held)
        RETURNING t.place, t.token
    LOOP
        RETURN NEXT;
    END LOOP;
END $$;

-- When the next run can be had. Free runs by workflow: a skip scan, two seeks a workflow. One that
-- somebody holds can be had when its lease is over and its time has come.
CREATE FUNCTION @next_runnable_at_1() RETURNS bigint
LANGUAGE plpgsql STABLE
SET jit = off SET enable_seqscan = off SET enable_sort = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
BEGIN
    RETURN (
        WITH RECURSIVE shelf (workflow, due) AS (
            (SELECT r.workflow, r.runnable_at FROM @runs AS r
             WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL
             ORDER BY r.workflow, r.runnable_at LIMIT 1)
            UNION ALL
            SELECT n.workflow, n.runnable_at FROM shelf CROSS JOIN LATERAL (
                SELECT r.workflow, r.runnable_at FROM @runs AS r
                WHERE r.runnable_at IS NOT NULL AND r.owner IS NULL
                  AND r.workflow > shelf.workflow
                ORDER BY r.workflow, r.runnable_at LIMIT 1
            ) AS n
        )
        SELECT least(
            (SELECT min(shelf.due) FROM shelf),
            (SELECT min(greatest(r.runnable_at, r.claimed_until)) FROM @runs AS r
             WHERE r.owner IS NOT NULL AND r.runnable_at IS NOT NULL)
        )
    );
END $$;
