-- Deletes runs and their contents, except for facts. The caller holds the locks.
CREATE OR REPLACE FUNCTION @delete_runs(ks bigint[], ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM @keys WHERE run_id = ANY (ids);
    DELETE FROM @events WHERE run_key = ANY (ks);
    DELETE FROM @inbox WHERE run_key = ANY (ks);
    DELETE FROM @receipts WHERE run_key = ANY (ks);
    DELETE FROM @timers WHERE run_key = ANY (ks);
    DELETE FROM @entries WHERE run_key = ANY (ks);
    DELETE FROM @activities WHERE run_key = ANY (ks);
    DELETE FROM @snapshots WHERE run_key = ANY (ks);
    DELETE FROM @attributes WHERE run_key = ANY (ks);
    DELETE FROM @run_details WHERE key = ANY (ks);
    DELETE FROM @runs WHERE key = ANY (ks);
    DELETE FROM @tasks WHERE run_id = ANY (ids) AND run_id <> '';
    DELETE FROM @dead_tasks WHERE run_id = ANY (ids) AND run_id <> '';
END $$;
