-- The store's time in microseconds: `at` if the caller passes a clock's, else the server's plus `shift`.
CREATE OR REPLACE FUNCTION @now(at bigint, shift bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + shift)
$$;
