-- Whether a claim still holds a task: '' if so (the row is then locked), else 'busy' or 'lost'.
CREATE OR REPLACE FUNCTION @check_task_claim(a_task_hash bytea, a_token bigint) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM @tasks AS t
    WHERE t.task_hash = a_task_hash AND t.owner IS NOT NULL AND t.token = a_token
    FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN '';
    END IF;
    PERFORM FROM @tasks AS t
    WHERE t.task_hash = a_task_hash AND t.owner IS NOT NULL AND t.token = a_token;
    RETURN CASE WHEN FOUND THEN 'busy' ELSE 'lost' END;
END $$;
