-- Deletes the life of a run that is replaced, and its finished descendants unless `all_stay`. Other
-- descendants continue and keep the facts of the tree. The caller holds the locks.
CREATE OR REPLACE FUNCTION @delete_life(run text, all_stay boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ks bigint[];
    ids text[];
BEGIN
    SELECT array_agg(key), array_agg(id) INTO ks, ids FROM @runs
    WHERE id = run
       OR (NOT all_stay AND id > run || '~' AND id < run || chr(127)
           AND @is_finished(status, wait_kind));
    PERFORM @delete_runs(ks, ids);
    IF NOT EXISTS (SELECT FROM @runs WHERE id > run || '~' AND id < run || chr(127)) THEN
        DELETE FROM @keys WHERE run_id > run || '~' AND run_id < run || chr(127);
        DELETE FROM @facts WHERE root = run;
    END IF;
END $$;
