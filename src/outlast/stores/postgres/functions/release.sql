-- Releases claims, which come sorted; one row per claim that was not lost. Waits for locks: a claim that
-- stays would delay other claimers until its lease ends.
CREATE OR REPLACE FUNCTION @release(
    r_id text[], r_uid text[], r_token bigint[], t_hash bytea[], t_token bigint[]
) RETURNS TABLE (subject text, task_hash bytea, given bigint)
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
    FROM unnest(t_hash, t_token) AS c (task_hash, token) CROSS JOIN LATERAL (
        SELECT t.key FROM @tasks AS t
        WHERE t.task_hash = c.task_hash AND t.token = c.token AND t.owner IS NOT NULL
        FOR UPDATE
    ) AS m;
    FOR task_hash, given IN
        UPDATE @tasks AS t SET owner = NULL, claimed_until = NULL WHERE t.key = ANY (held)
        RETURNING t.task_hash, t.token
    LOOP
        RETURN NEXT;
    END LOOP;
END $$;
