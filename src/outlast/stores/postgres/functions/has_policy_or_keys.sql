-- Whether a scope has a policy or tasks with keys.
CREATE OR REPLACE FUNCTION @has_policy_or_keys(s text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM @policies AS f WHERE f.scope = s AND f.policy IS NOT NULL)
        OR EXISTS (SELECT FROM @fair_keys AS l WHERE l.scope = s AND l.fair_key > '')
        OR EXISTS (SELECT FROM @fair_key_wakeups AS r WHERE r.scope = s);
END $$;
