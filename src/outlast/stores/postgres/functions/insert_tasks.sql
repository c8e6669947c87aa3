-- Inserts tasks that are not handed out before `earliest`; returns how many were new.
CREATE OR REPLACE FUNCTION @insert_tasks(
    now bigint, earliest bigint, tasks jsonb, life text, blobs bytea[]
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    added bigint;
BEGIN
    INSERT INTO @tasks (task_hash, queue, run_id, id, uid, kind, name, step, definition, priority,
                        run_at, attempt, metadata, enqueued_at, input, ready_at, fair_key)
    SELECT decode(x.task_hash, 'hex'), x.queue, x.run_id, x.id, coalesce(life, x.uid), x.kind, x.name,
           x.step, x.definition, x.priority, x.run_at, x.attempt, x.metadata, now, blobs[x.input],
           greatest(x.run_at, earliest), coalesce(x.fair_key, '')
    FROM jsonb_array_elements(tasks) WITH ORDINALITY AS e (task, position),
         jsonb_to_record(e.task)
             AS x (task_hash text, queue text, run_id text, id text, uid text, kind text, name text,
                   step text, definition text, priority bigint, run_at bigint, attempt bigint,
                   metadata text, input int, fair_key text)
    ORDER BY e.position
    ON CONFLICT (task_hash) DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    RETURN added;
END $$;
