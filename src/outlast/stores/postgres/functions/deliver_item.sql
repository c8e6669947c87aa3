-- Puts one item into an inbox and makes its run runnable. The caller usually holds the run's lock; a
-- run that was created since then is locked here, and read as it is then.
CREATE OR REPLACE FUNCTION @deliver_item(
    now bigint, run text, life text, item text, a_kind text, a_name text, a_sender text,
    a_data bytea, OUT verdict text, OUT given bigint, OUT current bigint, OUT stands text
)
LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    SELECT * INTO r FROM @runs WHERE id = run FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'not found';
        RETURN;
    END IF;
    current := r.token;
    stands := r.status;
    IF life IS NOT NULL AND life <> r.uid THEN
        verdict := 'fenced';
        RETURN;
    END IF;
    IF r.inbox > 0 THEN
        SELECT t.number INTO given FROM @receipts AS t WHERE t.run_key = r.key AND t.id = item;
        IF FOUND THEN
            verdict := 'again';
            RETURN;
        END IF;
    END IF;
    IF r.status IN ('completed', 'failed', 'cancelled') THEN
        verdict := 'closed';
        RETURN;
    END IF;
    given := r.inbox + 1;
    verdict := 'done';
    INSERT INTO @receipts (run_key, id, number) VALUES (r.key, item, given);
    INSERT INTO @inbox (run_key, number, id, kind, name, sender, sent_at, data)
    VALUES (r.key, given, item, a_kind, a_name, a_sender, now, a_data);
    UPDATE @runs SET inbox = given, runnable_at = least(coalesce(runnable_at, now), now)
    WHERE key = r.key;
END $$;
