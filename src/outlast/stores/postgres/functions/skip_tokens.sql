-- Advances the token sequence to `above`, if it is behind. Serialized: two concurrent setval() could set it
-- back.
CREATE OR REPLACE FUNCTION @skip_tokens(above bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('skip', '@tokens'::regclass::oid::bigint));
    IF (SELECT t.last_value FROM @tokens AS t) < above THEN
        PERFORM setval('@tokens', above);
    END IF;
END $$;
