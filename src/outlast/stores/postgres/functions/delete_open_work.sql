-- Deletes what ended runs leave open: tasks, and timers that have not fired.
CREATE OR REPLACE FUNCTION @delete_open_work(ks bigint[], runs text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- `run_id <> ''` matches the predicate of the partial indexes.
    DELETE FROM @tasks AS t WHERE t.run_id = ANY (runs) AND t.run_id <> '';
    DELETE FROM @dead_tasks AS t WHERE t.run_id = ANY (runs) AND t.run_id <> '';
    DELETE FROM @timers AS t WHERE t.run_key = ANY (ks) AND NOT t.fired;
END $$;
