-- The queues of a scope: its own name, and names that continue with a slash.
CREATE OR REPLACE FUNCTION @queues_of_scope(s text) RETURNS TABLE (queue text)
LANGUAGE sql STABLE AS $$
    SELECT q.queue FROM @find_queues(s, s || chr(1)) AS q
    UNION ALL
    SELECT q.queue FROM @find_queues(s || '/', s || '0') AS q
$$;
