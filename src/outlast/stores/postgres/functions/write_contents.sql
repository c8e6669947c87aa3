-- Writes the contents of one commit besides record and events. The key of a new child is put into `keys`.
CREATE OR REPLACE FUNCTION @write_contents(
    now bigint, run text, INOUT keys bigint[], n int, life text, p jsonb, blobs bytea[],
    OUT fired text[], OUT undelivered text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    k bigint := keys[n];
    child bigint;
    d jsonb;
    x record;
    outcome text;
BEGIN
    fired := '{}';
    undelivered := '{}';
    d := p -> 'details';
    IF d IS NOT NULL THEN
        PERFORM @update_details(ARRAY[k], ARRAY[d], blobs);
        IF d ? 'attributes' THEN
            DELETE FROM @attributes AS t WHERE t.run_key = k;
            INSERT INTO @attributes (run_key, hash, created_at)
            SELECT k, decode(m.hash, 'hex'), t.created_at
            FROM @runs AS t, jsonb_array_elements_text(d -> 'hashes') AS m (hash)
            WHERE t.key = k;
        END IF;
    END IF;
    -- Children first: an item may be addressed to one of them. In order of their ids, against deadlock.
    FOR x IN
        SELECT s.new_run, (s.new_run ->> 'life')::int AS life, s.new_run ->> 'id' AS id,
               (s.new_run ->> 'events')::int AS events, s.new_run ->> 'status' AS status
        FROM jsonb_array_elements(p -> 'starts') WITH ORDINALITY AS s (new_run, position)
        ORDER BY (s.new_run ->> 'id') COLLATE "C", s.position
    LOOP
        child := @create_run(now, x.new_run, blobs);
        CONTINUE WHEN child IS NULL;
        keys[x.life] := child;
        IF x.events > 0 THEN
            UPDATE @runs AS t SET sequence = x.events WHERE t.key = child;
        END IF;
        IF x.status IN ('completed', 'failed', 'cancelled') THEN
            PERFORM @end_run(now, child, x.id);
        END IF;
    END LOOP;
    FOR x IN
        SELECT * FROM jsonb_to_recordset(p -> 'sends')
            AS s (run text, uid text, id text, kind text, name text, sender text, data int)
    LOOP
        SELECT v.verdict INTO outcome
        FROM @deliver_item(now, x.run, x.uid, x.id, x.kind, x.name, x.sender, blobs[x.data]) AS v;
        IF outcome NOT IN ('done', 'again') THEN
            undelivered := undelivered || x.id;
        END IF;
    END LOOP;
    IF p ? 'finishes' THEN
        DELETE FROM @tasks AS t WHERE t.task_hash = ANY (ARRAY(
            SELECT decode(f.task_hash, 'hex') FROM jsonb_to_recordset(p -> 'finishes') AS f (task_hash text)
        ));
    END IF;
    IF p ? 'drops' THEN
        DELETE FROM @tasks AS t WHERE t.run_id = run AND t.run_id <> '' AND t.id = ANY (ARRAY(
            SELECT f.id FROM jsonb_array_elements_text(p -> 'drops') AS f (id)
        ));
        DELETE FROM @dead_tasks AS t WHERE t.run_id = run AND t.run_id <> '' AND t.id = ANY (ARRAY(
            SELECT f.id FROM jsonb_array_elements_text(p -> 'drops') AS f (id)
        ));
    END IF;
    IF p ? 'tasks' THEN
        PERFORM @insert_tasks(now, now, p -> 'tasks', life, blobs);
    END IF;
    IF p ? 'dead' THEN
        PERFORM @insert_dead_tasks(now, p -> 'dead', life, blobs);
    END IF;
    IF p ? 'timers' THEN
        INSERT INTO @timers (run_key, id, fire_at)
        SELECT k, f.id, f.fire_at
        FROM jsonb_to_recordset(p -> 'timers') AS f (id text, fire_at bigint)
        ON CONFLICT DO NOTHING;
    END IF;
    FOR x IN SELECT f.id FROM jsonb_array_elements_text(p -> 'fired') AS f (id) LOOP
        UPDATE @timers AS t SET fired = true WHERE t.run_key = k AND t.id = x.id AND NOT t.fired;
        IF FOUND THEN
            fired := fired || x.id;
        END IF;
    END LOOP;
    IF p ? 'facts' THEN
        INSERT INTO @facts (root, hash, data)
        SELECT DISTINCT ON (f.hash) split_part(run, '~', 1), f.hash, blobs[f.data]
        FROM jsonb_to_recordset(p -> 'facts') AS f (hash text, data int)
        ORDER BY f.hash
        ON CONFLICT DO NOTHING;
    END IF;
    IF p ? 'entries' THEN
        INSERT INTO @entries (run_key, timestamp, id, step_id, step_type, action, duration_ms,
                              error, input, output)
        SELECT k, coalesce(f.timestamp, now), f.id, f.step_id, f.step_type, f.action,
               f.duration_ms, f.error, blobs[f.input], blobs[f.output]
        FROM jsonb_array_elements(p -> 'entries') WITH ORDINALITY AS e (value, position),
             jsonb_to_record(e.value)
                 AS f (timestamp bigint, id text, step_id text, step_type text, action text,
                       duration_ms bigint, error text, input int, output int)
        ORDER BY e.position;
    END IF;
    FOR x IN
        SELECT * FROM jsonb_to_recordset(p -> 'activities')
            AS f (id text, name text, status text, attempt bigint, started_at bigint,
                  ended_at bigint, error text, input int, output int)
    LOOP
        INSERT INTO @activities AS t (id, run_key, name, status, attempt, started_at, ended_at,
                                      error, input, output)
        VALUES (x.id, k, x.name, x.status, x.attempt, x.started_at, x.ended_at, x.error,
                blobs[x.input], blobs[x.output])
        ON CONFLICT (id) DO UPDATE SET
            run_key = excluded.run_key, name = excluded.name, status = excluded.status,
            attempt = excluded.attempt, started_at = excluded.started_at,
            ended_at = excluded.ended_at, error = excluded.error, input = excluded.input,
            output = excluded.output;
    END LOOP;
    IF p ? 'snapshot' THEN
        INSERT INTO @snapshots AS t (run_key, run_id, saved_at, envelope)
        VALUES (k, run, now, blobs[(p ->> 'snapshot')::int])
        ON CONFLICT (run_key) DO UPDATE SET
            saved_at = excluded.saved_at, envelope = excluded.envelope;
    END IF;
END $$;
