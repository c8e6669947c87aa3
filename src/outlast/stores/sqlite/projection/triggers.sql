-- Runs and audit lines in the shape of the seed's tables, written in the commit that changes them. `when`
-- is the event of a trigger, the rest its body: once for a changed row (NEW), and once for all rows that
-- existed before (`rows AS NEW`). `<executions>` and `<entries>` are the tables; projection.py replaces the
-- rest: `payload(x)` is a payload as JSON text, `doc(x)` the same of an event, `at(x)` a time,
-- `published(x)` the published values.

-- name: runs_turn
-- when: AFTER UPDATE OF revision ON runs
INSERT INTO <executions> (id, workflow_id, status, input, ctx, current_step, created_at, updated_at)
SELECT NEW.id, NEW.workflow, NEW.status, '{}', '{}', NEW.current_step, at(NEW.created_at),
       at(NEW.updated_at)
FROM <rows> WHERE true
ON CONFLICT (id) DO UPDATE SET workflow_id = excluded.workflow_id, status = excluded.status,
    current_step = excluded.current_step, updated_at = excluded.updated_at

-- name: runs_born
-- when: AFTER INSERT ON runs
INSERT INTO <executions> (id, workflow_id, status, input, ctx, current_step, created_at, updated_at)
SELECT NEW.id, NEW.workflow, NEW.status, '{}', '{}', NEW.current_step, at(NEW.created_at),
       at(NEW.updated_at)
FROM <rows> WHERE true
ON CONFLICT (id) DO UPDATE SET workflow_id = excluded.workflow_id, status = excluded.status,
    current_step = excluded.current_step, updated_at = excluded.updated_at

-- name: runs_bring
-- Lines that a commit has written before the run itself.
-- when: AFTER INSERT ON runs
INSERT INTO <entries> (id, execution_id, step_id, step_type, action, duration_ms, input, output, error,
                       timestamp)
SELECT e.id || CASE WHEN EXISTS (SELECT 1 FROM <entries> WHERE id = e.id) THEN '#' || e.key
                    ELSE '' END,
       NEW.id, e.step_id, e.step_type, e.action, e.duration_ms, payload(e.input), payload(e.output),
       e.error, at(e.timestamp)
FROM entries AS e WHERE e.run_key = NEW.key

-- name: runs_gone
-- when: AFTER DELETE ON runs
DELETE FROM <entries> WHERE execution_id = OLD.id;
DELETE FROM <executions> WHERE id = OLD.id

-- name: details_born
-- when: AFTER INSERT ON run_details
UPDATE <executions> SET input = coalesce(payload(NEW.input), '{}')
FROM <rows> WHERE id = (SELECT r.id FROM runs AS r WHERE r.key = NEW.key)

-- name: details_turn
-- when: AFTER UPDATE OF input ON run_details
UPDATE <executions> SET input = coalesce(payload(NEW.input), '{}')
FROM <rows> WHERE id = (SELECT r.id FROM runs AS r WHERE r.key = NEW.key)

-- name: values_born
-- when: AFTER INSERT ON run_values
UPDATE <executions>
SET error = NEW.error, recover_to = NEW.recover_to, result = payload(NEW.result),
    halt_data = payload(NEW.halt_data), ctx = published(NEW.ctx)
FROM <rows> WHERE id = (SELECT r.id FROM runs AS r WHERE r.key = NEW.key)

-- name: values_turn
-- when: AFTER UPDATE ON run_values
UPDATE <executions>
SET error = NEW.error, recover_to = NEW.recover_to, result = payload(NEW.result),
    halt_data = payload(NEW.halt_data), ctx = published(NEW.ctx)
FROM <rows> WHERE id = (SELECT r.id FROM runs AS r WHERE r.key = NEW.key)

-- name: entries_born
-- when: AFTER INSERT ON entries
INSERT INTO <entries> (id, execution_id, step_id, step_type, action, duration_ms, input, output, error,
                       timestamp)
SELECT NEW.id || CASE WHEN EXISTS (SELECT 1 FROM <entries> WHERE id = NEW.id) THEN '#' || NEW.key
                      ELSE '' END,
       r.id, NEW.step_id, NEW.step_type, NEW.action, NEW.duration_ms, payload(NEW.input),
       payload(NEW.output), NEW.error, at(NEW.timestamp)
FROM <rows>, runs AS r WHERE r.key = NEW.run_key

-- name: events_born
-- The same lines that `outlast.engine.replay.audit` computes. What a step or child was given stands in the
-- event that began it, most often just before.
-- when: AFTER INSERT ON events WHEN NEW.type IN ('step.completed', 'step.failed', 'signal.received', 'halt.started', 'child.completed', 'child.failed')
INSERT INTO <entries> (id, execution_id, step_id, step_type, action, duration_ms, input, output, error,
                       timestamp)
SELECT NEW.id || CASE WHEN EXISTS (SELECT 1 FROM <entries> WHERE id = NEW.id)
                      THEN '#' || NEW.run_key || '.' || NEW.sequence ELSE '' END,
       r.id, NEW.step_name, substr(NEW.type, 1, instr(NEW.type, '.') - 1),
       CASE NEW.type WHEN 'halt.started' THEN 'halted' WHEN 'step.failed' THEN 'failed'
                     WHEN 'child.failed' THEN 'failed' ELSE 'completed' END,
       json_extract(doc(NEW.data), '$.duration_ns') / 1000000,
       CASE NEW.type
           WHEN 'signal.received' THEN doc(NEW.data) -> '$.payload'
           WHEN 'halt.started' THEN doc(NEW.data) -> '$.data'
           ELSE (SELECT CAST(s.data AS TEXT) -> '$.input' FROM events AS s
                 WHERE s.run_key = NEW.run_key AND s.sequence < NEW.sequence
                   AND s.step_name = NEW.step_name AND s.type IN ('step.started', 'child.spawned')
                   AND json_type(doc(s.data), '$.input') IS NOT NULL
                 ORDER BY s.sequence DESC LIMIT 1) END,
       CASE NEW.type WHEN 'child.completed' THEN doc(NEW.data) -> '$.output'
                     ELSE payload(NEW.output) END,
       json_extract(doc(NEW.data), '$.error'), at(NEW.timestamp)
FROM <rows>, runs AS r WHERE r.key = NEW.run_key
