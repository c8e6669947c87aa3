-- Claims one task of a run if it is available. Without `ttl` the claim has no expiry.
CREATE OR REPLACE FUNCTION @claim_task(
    at bigint, shift bigint, a_run text, a_id text, a_owner text, ttl bigint
) RETURNS SETOF @tasks
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' AS $$
DECLARE
    now bigint := @now(at, shift);
BEGIN
    RETURN QUERY
        WITH one AS (
            SELECT t.key FROM @tasks AS t
            WHERE t.run_id = a_run AND t.run_id <> '' AND t.id = a_id AND t.ready_at <= now
              AND (t.owner IS NULL OR t.claimed_until <= now)
            ORDER BY t.key
            LIMIT 1 FOR UPDATE SKIP LOCKED
        )
        UPDATE @tasks AS t
        SET owner = a_owner, token = nextval('@tokens'), claimed_until = now + ttl
        FROM one WHERE t.key = one.key
        RETURNING t.*;
END $$;
