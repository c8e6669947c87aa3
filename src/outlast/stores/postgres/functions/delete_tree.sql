-- Deletes a run with its descendants and contents; whether the run existed. The caller holds the locks.
-- DEL follows "~" in every encoding, so a range finds the ids that continue with "~".
CREATE OR REPLACE FUNCTION @delete_tree(run text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    ks bigint[];
    ids text[];
BEGIN
    SELECT array_agg(key), array_agg(id) INTO ks, ids FROM @runs
    WHERE id = run OR (id > run || '~' AND id < run || chr(127));
    DELETE FROM @keys WHERE run_id = run OR (run_id > run || '~' AND run_id < run || chr(127));
    IF ks IS NULL THEN
        RETURN false;
    END IF;
    PERFORM @delete_runs(ks, ids);
    IF NOT run = ANY (ids) THEN
        RETURN false;
    END IF;
    DELETE FROM @facts WHERE root = run;
    RETURN true;
END $$;
