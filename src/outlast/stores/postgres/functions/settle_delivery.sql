-- Ends or changes the delivery of a task, if the claim still holds it: 'ack' deletes the task, 'extend' sets
-- the lease to `span` from now, 'nack' returns it after `span`, 'bury' moves it to the dead tasks, 'drop'
-- deletes it. Returns 'done', 'fenced' with the current token, or 'not found'.
CREATE OR REPLACE FUNCTION @settle_delivery(
    at bigint, shift bigint, verb text, a_task_hash bytea, a_token bigint, span bigint, most bigint,
    why text, OUT verdict text, OUT current bigint, OUT until bigint
)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint := @now(at, shift);
    t record;
BEGIN
    SELECT k.key, k.owner, k.token, k.attempt, k.queue, k.claimed_until INTO t
    FROM @tasks AS k WHERE k.task_hash = a_task_hash
    FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'not found';
        RETURN;
    END IF;
    IF t.owner IS NULL OR t.token <> a_token
       OR (verb = 'extend' AND @lost_slot(t.queue, t.claimed_until, at, shift)) THEN
        verdict := 'fenced';
        current := t.token;
        RETURN;
    END IF;
    verdict := 'done';
    until := now + span;
    IF verb IN ('ack', 'drop') THEN
        DELETE FROM @tasks AS k WHERE k.key = t.key;
    ELSIF verb = 'extend' THEN
        UPDATE @tasks AS k SET claimed_until = now + span WHERE k.key = t.key;
    ELSIF verb = 'nack' AND t.attempt < most THEN
        UPDATE @tasks AS k SET owner = NULL, claimed_until = NULL, ready_at = now + span
        WHERE k.key = t.key;
    ELSE
        PERFORM @bury_task(now, t.key, why);
    END IF;
END $$;
