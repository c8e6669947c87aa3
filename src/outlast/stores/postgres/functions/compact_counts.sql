-- Replaces many rows of `run_counts` by their sums. A reader sees all of that or nothing.
CREATE OR REPLACE FUNCTION @compact_counts() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- Under a stricter isolation, rows that another transaction has compacted would be an error.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM @run_counts WHERE ctid = ANY (ARRAY(
            SELECT c.ctid FROM @run_counts AS c LIMIT 8192 FOR UPDATE SKIP LOCKED
        ))
        RETURNING workflow, status, number
    )
    INSERT INTO @run_counts (workflow, status, number)
    SELECT workflow, status, sum(number) FROM gone GROUP BY workflow, status
    HAVING sum(number) <> 0;
END $$;
