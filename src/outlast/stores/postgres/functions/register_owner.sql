-- Registers an owner as alive for as long as this session lasts. The lock comes first: a process that
-- finds a row without a lock may conclude that the owner has died.
CREATE OR REPLACE FUNCTION @register_owner(a_owner text) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '2s' AS $$
BEGIN
    PERFORM pg_advisory_lock_shared(@owner_lock_id(a_owner));
    INSERT INTO @owners (owner) VALUES (a_owner)
    ON CONFLICT (owner) DO UPDATE SET missing_at = NULL, gone_at = NULL;
END $$;
