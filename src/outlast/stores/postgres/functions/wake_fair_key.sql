-- Trigger: records that a task of a key was added or a slot of it was freed. One row per key and
-- transaction.
CREATE OR REPLACE FUNCTION @wake_fair_key() RETURNS trigger
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    t record;
    is_added boolean := TG_OP = 'INSERT';
    is_freed boolean := TG_OP <> 'INSERT';
BEGIN
    IF TG_OP = 'DELETE' THEN
        t := OLD;
    ELSE
        t := NEW;
    END IF;
    IF NOT EXISTS (
        SELECT FROM @fair_key_wakeups AS r
        WHERE r.scope = split_part(t.queue, '/', 1) AND r.queue = t.queue AND r.fair_key = t.fair_key
          AND r.added >= is_added AND r.freed >= is_freed AND r.xmin = pg_current_xact_id()::xid
    ) THEN
        INSERT INTO @fair_key_wakeups (scope, queue, fair_key, added, freed)
        VALUES (split_part(t.queue, '/', 1), t.queue, t.fair_key, is_added, is_freed);
    END IF;
    RETURN NULL;
END $$;
