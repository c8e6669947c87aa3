-- The id of an owner's advisory lock.
CREATE OR REPLACE FUNCTION @owner_lock_id(a_owner text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hashtextextended(a_owner, '@owners'::regclass::oid::bigint)
$$;
