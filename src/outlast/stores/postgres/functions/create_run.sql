-- Inserts a run from its record. Returns its key, or NULL if the id is taken; waits for a transaction
-- that is inserting the same id. `ended_at` is set for a run that ended in another store.
CREATE OR REPLACE FUNCTION @create_run(now bigint, b jsonb, blobs bytea[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    k bigint;
    created bigint := coalesce((b->>'created_at')::bigint, now);
    due bigint := (b->>'runnable_at')::bigint;
BEGIN
    INSERT INTO @runs (id, uid, workflow, parent, status, wait_kind, current_step, runnable_at,
                       created_at, updated_at, ended_at)
    VALUES (b->>'id', b->>'uid', b->>'workflow', b->>'parent', b->>'status', b->>'wait_kind',
            b->>'current_step', CASE WHEN due IS NOT NULL THEN greatest(due, now) END, created, now,
            (b->>'ended_at')::bigint)
    ON CONFLICT (id) DO NOTHING
    RETURNING key INTO k;
    IF k IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO @run_details (key, version, definition, queue, priority, attributes, input, error,
                              recover_to, rejected_by, ctx, result, halt_data)
    VALUES (k, b->>'version', b->>'definition', b->>'queue', (b->>'priority')::bigint,
            b->>'attributes', blobs[(b->>'input')::int], b->>'error', b->>'recover_to', b->>'rejected_by',
            blobs[(b->>'ctx')::int], blobs[(b->>'result')::int], blobs[(b->>'halt_data')::int]);
    IF b ? 'hashes' THEN
        INSERT INTO @attributes (run_key, hash, created_at)
        SELECT k, decode(m.hash, 'hex'), created
        FROM jsonb_array_elements_text(b->'hashes') AS m (hash);
    END IF;
    RETURN k;
END $$;
