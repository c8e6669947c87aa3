-- Stores a policy with an audit line; the last `kept` lines stay. With `new_declared` nothing is written if
-- the code declared the same before. With `has_expected` nothing is written, and the result is false, if
-- the stored policy is not `seen`.
CREATE OR REPLACE FUNCTION @write_policy(
    at bigint, shift bigint, s text, new_policy text, new_declared text, kept int, has_expected boolean, seen text,
    who text, is_paused boolean, a_concurrency bigint, a_key_concurrency bigint, a_rate_limit bigint, a_rate_per bigint,
    a_key_rate_limit bigint, a_key_rate_per bigint, an_ageing double precision, w_key text[],
    w_stride bigint[]
) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' AS $$
BEGIN
    -- Checked twice: most processes declare what is stored, and need no lock.
    IF EXISTS (SELECT FROM @policies AS f WHERE f.scope = s AND f.declared = new_declared) THEN
        RETURN true;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(s, '@policies'::regclass::oid::bigint));
    IF EXISTS (SELECT FROM @policies AS f WHERE f.scope = s AND f.declared = new_declared) THEN
        RETURN true;
    END IF;
    IF has_expected AND seen IS DISTINCT FROM (SELECT f.policy FROM @policies AS f WHERE f.scope = s) THEN
        RETURN false;
    END IF;
    INSERT INTO @policies (scope) VALUES (s) ON CONFLICT DO NOTHING;
    UPDATE @policies AS f SET
        policy = new_policy, declared = coalesce(new_declared, f.declared), paused = is_paused,
        concurrency = a_concurrency, key_concurrency = a_key_concurrency,
        rate_limit = a_rate_limit, rate_per = a_rate_per, key_rate_limit = a_key_rate_limit,
        key_rate_per = a_key_rate_per, ageing = an_ageing, weighted = w_key <> '{}'
    WHERE f.scope = s;
    DELETE FROM @fair_weights AS w WHERE w.scope = s;
    INSERT INTO @fair_weights (scope, fair_key, stride)
    SELECT s, u.fair_key, u.stride FROM unnest(w_key, w_stride) AS u (fair_key, stride);
    INSERT INTO @policy_changes (scope, at, by, policy)
    VALUES (s, @now(at, shift), who, new_policy);
    DELETE FROM @policy_changes AS c WHERE c.scope = s AND c.key <= (
        SELECT o.key FROM @policy_changes AS o WHERE o.scope = s ORDER BY o.key DESC LIMIT 1 OFFSET kept
    );
    -- A key at a limit may have capacity now.
    UPDATE @fair_keys AS l SET wake_at = NULL WHERE l.scope = s AND l.wake_at < 9223372036854775807;
    RETURN true;
END $$;
