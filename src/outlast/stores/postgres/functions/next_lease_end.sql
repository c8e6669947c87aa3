-- When the next lease of a queue ends, or NULL.
CREATE OR REPLACE FUNCTION @next_lease_end(now bigint, q text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT least((
        SELECT t.claimed_until FROM @tasks AS t
        WHERE t.owner IS NOT NULL AND t.queue = q AND t.fair_key = '' AND t.claimed_until > now
        ORDER BY t.claimed_until LIMIT 1
    ), (
        SELECT t.claimed_until FROM @tasks AS t
        WHERE t.owner IS NOT NULL AND t.fair_key <> '' AND t.queue = q AND t.claimed_until > now
        ORDER BY t.claimed_until LIMIT 1
    ))
$$;
