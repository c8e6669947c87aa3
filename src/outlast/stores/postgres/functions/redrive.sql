-- Makes dead tasks ready again, all of a queue or those in `a_ids`; returns how many.
CREATE OR REPLACE FUNCTION @redrive(at bigint, shift bigint, a_queue text, a_ids text[])
RETURNS bigint
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint := @now(at, shift);
    d record;
    moved bigint := 0;
BEGIN
    FOR d IN
        SELECT t.key FROM @dead_tasks AS t
        WHERE t.queue = a_queue AND (a_ids IS NULL OR t.id = ANY (a_ids))
        ORDER BY t.key FOR UPDATE
    LOOP
        INSERT INTO @tasks (task_hash, queue, run_id, id, uid, kind, name, step, definition, priority,
                            run_at, attempt, metadata, enqueued_at, input, ready_at, fair_key)
        SELECT t.task_hash, t.queue, t.run_id, t.id, t.uid, t.kind, t.name, t.step, t.definition,
               t.priority, t.run_at, 0, t.metadata, t.enqueued_at, t.input, now, t.fair_key
        FROM @dead_tasks AS t WHERE t.key = d.key
        ON CONFLICT (task_hash) DO NOTHING;
        DELETE FROM @dead_tasks AS t WHERE t.key = d.key;
        moved := moved + 1;
    END LOOP;
    RETURN moved;
END $$;
