-- Inserts dead tasks of a run that is imported from another store.
CREATE OR REPLACE FUNCTION @insert_dead_tasks(now bigint, tasks jsonb, life text, blobs bytea[])
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @dead_tasks (task_hash, queue, run_id, id, uid, kind, name, step, definition, priority,
                             run_at, attempt, metadata, enqueued_at, input, fair_key, reason, died_at)
    SELECT decode(x.task_hash, 'hex'), x.queue, x.run_id, x.id, life, x.kind, x.name, x.step,
           x.definition, x.priority, x.run_at, x.attempt, x.metadata, coalesce(x.enqueued_at, now),
           blobs[x.input], coalesce(x.fair_key, ''), x.reason, x.died_at
    FROM jsonb_array_elements(tasks) WITH ORDINALITY AS e (task, position),
         jsonb_to_record(e.task)
             AS x (task_hash text, queue text, run_id text, id text, uid text, kind text, name text,
                   step text, definition text, priority bigint, run_at bigint, attempt bigint,
                   metadata text, input int, fair_key text, enqueued_at bigint, reason text,
                   died_at bigint)
    ORDER BY e.position
    ON CONFLICT (task_hash) DO NOTHING;
END $$;
