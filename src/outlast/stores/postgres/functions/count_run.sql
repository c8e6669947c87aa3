-- Counts runs by workflow and status. Each change is a row of its own: commits that update one counter
-- would wait for each other. Every 512th row compacts the table.
CREATE OR REPLACE FUNCTION @count_run() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO @run_counts (workflow, status, number) VALUES (NEW.workflow, NEW.status, 1)
        RETURNING key INTO last;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO @run_counts (workflow, status, number) VALUES (OLD.workflow, OLD.status, -1);
        INSERT INTO @run_counts (workflow, status, number) VALUES (NEW.workflow, NEW.status, 1)
        RETURNING key INTO last;
    ELSE
        INSERT INTO @run_counts (workflow, status, number) VALUES (OLD.workflow, OLD.status, -1)
        RETURNING key INTO last;
    END IF;
    IF last % 512 < 2 THEN
        PERFORM @compact_counts();
    END IF;
    RETURN NULL;
END $$;
