-- Moves a task to the dead ones. A task that dies a second time keeps its position in their order.
CREATE OR REPLACE FUNCTION @bury_task(now bigint, k bigint, why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @dead_tasks (task_hash, queue, run_id, id, uid, kind, name, step, definition, priority,
                             run_at, attempt, metadata, enqueued_at, input, fair_key, reason, died_at)
    SELECT t.task_hash, t.queue, t.run_id, t.id, t.uid, t.kind, t.name, t.step, t.definition,
           t.priority, t.run_at, t.attempt, t.metadata, t.enqueued_at, t.input, t.fair_key, why, now
    FROM @tasks AS t WHERE t.key = k
    ON CONFLICT (task_hash) DO UPDATE SET
        uid = excluded.uid, kind = excluded.kind, name = excluded.name, step = excluded.step,
        definition = excluded.definition, priority = excluded.priority, run_at = excluded.run_at,
        attempt = excluded.attempt, metadata = excluded.metadata,
        enqueued_at = excluded.enqueued_at, input = excluded.input, fair_key = excluded.fair_key,
        reason = excluded.reason, died_at = excluded.died_at;
    DELETE FROM @tasks AS t WHERE t.key = k;
END $$;
