-- Inserts tasks of a queue after `delay`; returns how many were new.
CREATE OR REPLACE FUNCTION @enqueue(at bigint, shift bigint, delay bigint, tasks text, blobs bytea[])
RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    now bigint := @now(at, shift);
BEGIN
    RETURN @insert_tasks(now, now + delay, tasks::jsonb, NULL, blobs);
END $$;
