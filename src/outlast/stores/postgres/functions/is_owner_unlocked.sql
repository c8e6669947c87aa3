-- Whether no session holds the lock of an owner. A session does not conflict with its own lock, so the
-- setting `outlast.live` is checked first.
CREATE OR REPLACE FUNCTION @is_owner_unlocked(a_owner text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN strpos(coalesce(current_setting('outlast.live', true), ''), quote_ident(a_owner) || ' ') = 0
        AND pg_try_advisory_xact_lock(@owner_lock_id(a_owner));
END $$;
