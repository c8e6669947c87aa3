-- Updates `run_details`: `ds` has the changed fields of each run.
CREATE OR REPLACE FUNCTION @update_details(ks bigint[], ds jsonb[], blobs bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @run_details AS t SET
        version = CASE WHEN d ? 'version' THEN d ->> 'version' ELSE t.version END,
        definition = CASE WHEN d ? 'definition' THEN d ->> 'definition' ELSE t.definition END,
        queue = CASE WHEN d ? 'queue' THEN d ->> 'queue' ELSE t.queue END,
        priority = CASE WHEN d ? 'priority' THEN (d ->> 'priority')::bigint ELSE t.priority END,
        attributes = CASE WHEN d ? 'attributes' THEN d ->> 'attributes' ELSE t.attributes END,
        input = CASE WHEN d ? 'input' THEN blobs[(d ->> 'input')::int] ELSE t.input END,
        error = CASE WHEN d ? 'error' THEN d ->> 'error' ELSE t.error END,
        recover_to = CASE WHEN d ? 'recover_to' THEN d ->> 'recover_to' ELSE t.recover_to END,
        rejected_by = CASE WHEN d ? 'rejected_by' THEN d ->> 'rejected_by' ELSE t.rejected_by END,
        ctx = CASE WHEN d ? 'ctx' THEN blobs[(d ->> 'ctx')::int] ELSE t.ctx END,
        result = CASE WHEN d ? 'result' THEN blobs[(d ->> 'result')::int] ELSE t.result END,
        halt_data = CASE
            WHEN d ? 'halt_data' THEN blobs[(d ->> 'halt_data')::int] ELSE t.halt_data END
    FROM unnest(ks, ds) AS u (key, d) WHERE t.key = u.key;
END $$;
