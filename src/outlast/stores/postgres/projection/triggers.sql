-- Runs and audit lines in the shape of the seed's tables, written in the commit that changes them,
-- by any process. `<executions>` and `<entries>` stand for the tables. What is not JSON is shown as text: a
-- projection never fails a commit. In plpgsql, whose plans are cached: a function in plain SQL is planned for every
-- row.

CREATE OR REPLACE FUNCTION @project_json(data bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(data, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN to_jsonb(encode(data, 'escape'));
END $$;

CREATE OR REPLACE FUNCTION @project_time(at bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT timestamptz 'epoch' + at * interval '1 microsecond'
$$;

-- What is published is kept as MessagePack: a map of text to bytes.
CREATE OR REPLACE FUNCTION @project_published(packed bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    found jsonb := '{}';
    place int := 1;
    pairs int;
    head int;
    size int;
    name text;
BEGIN
    IF packed IS NULL THEN
        RETURN found;
    END IF;
    head := get_byte(packed, 0);
    IF head = 222 THEN
        pairs := get_byte(packed, 1) * 256 + get_byte(packed, 2);
        place := 3;
    ELSIF head = 223 THEN
        pairs := get_byte(packed, 3) * 256 + get_byte(packed, 4);
        place := 5;
    ELSE
        pairs := head - 128;
    END IF;
    FOR token IN 1 .. 2 * pairs LOOP
        head := get_byte(packed, place);
        IF head BETWEEN 160 AND 191 THEN
            size := head - 160;
            place := place + 1;
        ELSIF head IN (217, 196) THEN
            size := get_byte(packed, place + 1);
            place := place + 2;
        ELSIF head IN (218, 197) THEN
            size := get_byte(packed, place + 1) * 256 + get_byte(packed, place + 2);
            place := place + 3;
        ELSE
            size := ((get_byte(packed, place + 1) * 256 + get_byte(packed, place + 2)) * 256
                     + get_byte(packed, place + 3)) * 256 + get_byte(packed, place + 4);
            place := place + 5;
        END IF;
        IF token % 2 = 1 THEN
            name := convert_from(substring(packed FROM place + 1 FOR size), 'UTF8');
        ELSE
            found := found || jsonb_build_object(
                name, @project_json(substring(packed FROM place + 1 FOR size)));
        END IF;
        place := place + size;
    END LOOP;
    RETURN found;
EXCEPTION WHEN OTHERS THEN
    RETURN found;
END $$;

CREATE OR REPLACE FUNCTION @project_run(run bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO <executions> (id, workflow_id, status, input, ctx, current_step, result, recover_to,
                              halt_data, error, created_at, updated_at)
    SELECT r.id, r.workflow, r.status, coalesce(@project_json(d.input), '{}'),
           @project_published(d.ctx), r.current_step, @project_json(d.result), d.recover_to,
           @project_json(d.halt_data), d.error, @project_time(r.created_at),
           @project_time(r.updated_at)
    FROM @runs AS r LEFT JOIN @run_details AS d ON d.key = r.key
    WHERE r.key = run
    ON CONFLICT (id) DO UPDATE SET
        workflow_id = excluded.workflow_id, status = excluded.status, input = excluded.input,
        ctx = excluded.ctx, current_step = excluded.current_step, result = excluded.result,
        recover_to = excluded.recover_to, halt_data = excluded.halt_data, error = excluded.error,
        updated_at = excluded.updated_at;
END $$;

CREATE OR REPLACE FUNCTION @project_entry(e @entries) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO <entries> (id, execution_id, step_id, step_type, action, duration_ms, input, output,
                           error, timestamp)
    SELECT e.id || CASE WHEN EXISTS (SELECT FROM <entries> AS x WHERE x.id = e.id) THEN '#' || e.key
                        ELSE '' END,
           r.id, e.step_id, e.step_type, e.action, e.duration_ms, @project_json(e.input),
           @project_json(e.output), e.error, @project_time(e.timestamp)
    FROM @runs AS r WHERE r.key = e.run_key;
END $$;

-- The same lines that `outlast.engine.replay.audit` computes. What a step or child was given stands in the
-- event that began it, most often just before.
CREATE OR REPLACE FUNCTION @project_event(e @events) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO <entries> (id, execution_id, step_id, step_type, action, duration_ms, input, output,
                           error, timestamp)
    SELECT e.id || CASE WHEN EXISTS (SELECT FROM <entries> AS x WHERE x.id = e.id)
                        THEN '#' || e.run_key || '.' || e.sequence ELSE '' END,
           r.id, e.step_name, split_part(e.type, '.', 1),
           CASE WHEN e.type = 'halt.started' THEN 'halted' WHEN e.type LIKE '%.failed' THEN 'failed'
                ELSE 'completed' END,
           (d.data ->> 'duration_ns')::bigint / 1000000,
           CASE e.type
               WHEN 'signal.received' THEN d.data -> 'payload'
               WHEN 'halt.started' THEN d.data -> 'data'
               ELSE (SELECT d.data -> 'input' FROM @events AS s, @project_json(s.data) AS d (data)
                     WHERE s.run_key = e.run_key AND s.sequence < e.sequence
                       AND s.step_name = e.step_name AND s.type IN ('step.started', 'child.spawned')
                       AND d.data ? 'input'
                     ORDER BY s.sequence DESC LIMIT 1) END,
           CASE WHEN e.type = 'child.completed' THEN d.data -> 'output'
                ELSE @project_json(e.output) END,
           d.data ->> 'error', @project_time(e.timestamp)
    FROM @runs AS r, (SELECT @project_json(e.data) AS data) AS d
    WHERE r.key = e.run_key
      AND e.type IN ('step.completed', 'step.failed', 'signal.received', 'halt.started',
                     'child.completed', 'child.failed');
END $$;

CREATE OR REPLACE FUNCTION @project() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_ARGV[0] = 'run' THEN
        PERFORM @project_run(NEW.key);
    ELSIF TG_ARGV[0] = 'entry' THEN
        PERFORM @project_entry(NEW);
    ELSIF TG_ARGV[0] = 'event' THEN
        PERFORM @project_event(NEW);
    ELSE
        DELETE FROM <entries> WHERE execution_id = OLD.id;
        DELETE FROM <executions> WHERE id = OLD.id;
    END IF;
    RETURN NULL;
END $$;

DROP TRIGGER IF EXISTS project_born ON @runs;
CREATE TRIGGER project_born AFTER INSERT ON @runs
    FOR EACH ROW EXECUTE FUNCTION @project('run');
DROP TRIGGER IF EXISTS project_turn ON @runs;
CREATE TRIGGER project_turn AFTER UPDATE ON @runs
    FOR EACH ROW WHEN (OLD.revision <> NEW.revision OR OLD.status <> NEW.status)
    EXECUTE FUNCTION @project('run');
DROP TRIGGER IF EXISTS project_gone ON @runs;
CREATE TRIGGER project_gone AFTER DELETE ON @runs
    FOR EACH ROW EXECUTE FUNCTION @project('gone');
DROP TRIGGER IF EXISTS project_details ON @run_details;
CREATE TRIGGER project_details AFTER INSERT OR UPDATE ON @run_details
    FOR EACH ROW EXECUTE FUNCTION @project('run');
DROP TRIGGER IF EXISTS project_entries ON @entries;
CREATE TRIGGER project_entries AFTER INSERT ON @entries
    FOR EACH ROW EXECUTE FUNCTION @project('entry');
DROP TRIGGER IF EXISTS project_events ON @events;
CREATE TRIGGER project_events AFTER INSERT ON @events
    FOR EACH ROW WHEN (NEW.type IN ('step.completed', 'step.failed', 'signal.received', 'halt.started',
                                    'child.completed', 'child.failed'))
    EXECUTE FUNCTION @project('event');

-- What was there before.
SELECT @project_run(r.key) FROM @runs AS r;
SELECT @project_entry(e) FROM @entries AS e
WHERE NOT EXISTS (SELECT FROM <entries> AS x WHERE x.id = e.id);
SELECT @project_event(e) FROM @events AS e
WHERE NOT EXISTS (SELECT FROM <entries> AS x WHERE x.id = e.id);
