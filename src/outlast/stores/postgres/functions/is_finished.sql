-- Whether a run has ended for good. A run that is being moved is closed, but may not have arrived.
CREATE OR REPLACE FUNCTION @is_finished(status text, wait_kind text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT status IN ('completed', 'failed', 'cancelled')
       AND NOT (status = 'cancelled' AND wait_kind IS NOT DISTINCT FROM 'moving')
$$;
