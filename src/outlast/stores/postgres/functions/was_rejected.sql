-- Whether this code could not continue the run before.
CREATE OR REPLACE FUNCTION @was_rejected(k bigint, code text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT strpos(d.rejected_by, code) > 0 FROM @run_details AS d WHERE d.key = k), false
    )
$$;
