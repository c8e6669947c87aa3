-- Whether an owner has died: it is registered, and no session holds its lock.
CREATE OR REPLACE FUNCTION @owner_gone(a_owner text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM @owners AS o WHERE o.owner = a_owner)
        AND @is_owner_unlocked(a_owner);
END $$;
