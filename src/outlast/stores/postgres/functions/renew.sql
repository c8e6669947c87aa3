-- Sets leases to `ttl` from now. One row per claim that is not lost. `extended` is false if another
-- transaction has locked the row: the claim stays valid, and the caller does not wait.
CREATE OR REPLACE FUNCTION @renew(
    at bigint, shift bigint, ttl bigint, r_id text[], r_uid text[], r_token bigint[],
    t_hash bytea[], t_token bigint[]
) RETURNS TABLE (subject text, task_hash bytea, given bigint, until bigint, extended boolean)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint := @now(at, shift);
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
    FROM unnest(t_hash, t_token) AS c (task_hash, token) CROSS JOIN LATERAL (
        SELECT t.key FROM @tasks AS t
        WHERE t.task_hash = c.task_hash AND t.token = c.token AND t.owner IS NOT NULL
          AND NOT @lost_slot(t.queue, t.claimed_until, at, shift)
        FOR UPDATE SKIP LOCKED
    ) AS m;
    UPDATE @tasks AS t SET claimed_until = now + ttl
    WHERE t.key = ANY (held) AND t.claimed_until IS NOT NULL;
    FOR task_hash, given, extended IN
        SELECT m.task_hash, m.token, m.key = ANY (held)
        FROM unnest(t_hash, t_token) AS c (task_hash, token) CROSS JOIN LATERAL (
            SELECT t.task_hash, t.token, t.key FROM @tasks AS t
            WHERE t.task_hash = c.task_hash AND t.token = c.token AND t.owner IS NOT NULL
              AND NOT @lost_slot(t.queue, t.claimed_until, at, shift)
            OFFSET 0
        ) AS m
    LOOP
        RETURN NEXT;
    END LOOP;
END $$;
