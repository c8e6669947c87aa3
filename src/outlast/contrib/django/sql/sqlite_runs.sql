-- A run in one row, as the model `Run` reads it: the same columns as on PostgreSQL.
CREATE VIEW IF NOT EXISTS outlast_django_runs AS
SELECT r.id, r.key, r.uid, r.workflow, r.parent, r.status, r.wait_kind, r.current_step,
       coalesce(d.queue, 'default') AS queue, coalesce(d.priority, 0) AS priority, r.owner,
       r.sequence, d.attributes, v.error, v.recover_to, r.created_at, r.updated_at, r.ended_at,
       r.runnable_at, r.claimed_until, d.input, v.result, v.halt_data, v.ctx
FROM outlast_runs AS r
LEFT JOIN outlast_run_details AS d ON d.key = r.key
LEFT JOIN outlast_run_values AS v ON v.key = r.key
