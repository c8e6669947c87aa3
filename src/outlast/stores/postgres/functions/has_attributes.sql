-- Whether a run has all of these attributes.
CREATE OR REPLACE FUNCTION @has_attributes(a_key bigint, hashes bytea[]) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT FROM unnest(hashes) AS m (hash)
        WHERE NOT EXISTS (SELECT FROM @attributes AS a WHERE a.run_key = a_key AND a.hash = m.hash)
    );
END $$;
