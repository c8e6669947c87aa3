-- Writes one commit that is not plain, except for its events. New lives are added to `keys`.
CREATE OR REPLACE FUNCTION @write_commit(
    now bigint, INOUT keys bigint[], n int, c_run text, c_id text, c_flags int, c_seen bigint,
    c_status text, c_workflow text, c_wait_kind text, c_current_step text, c_runnable_at bigint,
    c_events int, p jsonb, blobs bytea[],
    OUT o_uid text, OUT o_sequence bigint, OUT o_revision bigint, OUT o_token bigint,
    OUT still_runnable boolean, OUT fired text[], OUT undelivered text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    old bigint := keys[n];
    r record;
    new_token bigint;
    holder text;
    until bigint;
BEGIN
    -- the life
    IF old > 0 AND c_flags & 5 = 5 THEN
        SELECT * INTO r FROM @runs AS t WHERE t.key = old;
        IF c_flags & 16 <> 0 THEN
            -- Moved aside before the old life is deleted.
            UPDATE @inbox AS t SET run_key = -old WHERE t.run_key = old;
            -- The receipts of the last 1000 items and of all unread ones. The rest is deleted with the old life.
            UPDATE @receipts AS t SET run_key = -old WHERE t.run_key = old
               AND (t.number > r.inbox - 1000 OR EXISTS (
                   SELECT FROM @inbox AS m WHERE m.run_key = -old AND m.number = t.number));
        END IF;
        IF p -> 'new_run' ->> 'status' IN ('completed', 'failed', 'cancelled') THEN
            PERFORM @delete_tree(c_run);
        ELSE
            PERFORM @delete_life(c_run, p ? 'carry_tree');
        END IF;
        keys[n] := @create_run(now, p -> 'new_run', blobs);
        IF c_flags & 16 <> 0 THEN
            UPDATE @inbox AS t SET run_key = keys[n] WHERE t.run_key = -old;
            UPDATE @receipts AS t SET run_key = keys[n] WHERE t.run_key = -old;
            UPDATE @runs AS t SET inbox = r.inbox, runnable_at = CASE
                WHEN EXISTS (SELECT FROM @inbox AS m WHERE m.run_key = keys[n]) THEN now
                ELSE t.runnable_at END
            WHERE t.key = keys[n];
        END IF;
    ELSIF old = 0 THEN
        keys[n] := @create_run(now, p -> 'new_run', blobs);
    END IF;
    IF keys[n] IS NULL THEN
        RAISE lock_not_available USING MESSAGE = 'a name was taken meanwhile';
    END IF;

    -- the claim
    IF c_flags & 8 <> 0 THEN
        new_token := nextval('@tokens');
    END IF;
    IF p ? 'claim' THEN
        new_token := nextval('@tokens');
        holder := p -> 'claim' ->> 'owner';
        until := now + (p -> 'claim' ->> 'ttl')::bigint;
    END IF;

    -- inbox items that it consumes
    IF p ? 'consumes' THEN
        DELETE FROM @inbox AS t WHERE t.run_key = keys[n] AND t.number = ANY (ARRAY(
            SELECT f.number::bigint FROM jsonb_array_elements(p -> 'consumes') AS f (number)
        ));
    END IF;

    -- the record
    still_runnable := false;
    IF c_flags & (32 | 128) <> 0 THEN
        SELECT t.inbox > c_seen
               AND coalesce(c_status, t.status) NOT IN ('completed', 'failed', 'cancelled')
               AND EXISTS (SELECT FROM @inbox AS m WHERE m.run_key = t.key AND m.number > c_seen)
        INTO still_runnable FROM @runs AS t WHERE t.key = keys[n];
    END IF;
    UPDATE @runs AS t SET
        workflow = coalesce(c_workflow, t.workflow),
        status = coalesce(c_status, t.status),
        wait_kind = CASE WHEN c_flags & 256 <> 0 THEN c_wait_kind ELSE t.wait_kind END,
        current_step = CASE WHEN c_flags & 512 <> 0 THEN c_current_step ELSE t.current_step END,
        runnable_at = CASE
            WHEN still_runnable THEN now
            WHEN c_flags & 128 = 0 THEN t.runnable_at
            WHEN c_runnable_at IS NULL THEN NULL
            ELSE greatest(c_runnable_at, now) END,
        token = coalesce(new_token, t.token),
        owner = CASE
            WHEN c_flags & 32 <> 0 AND NOT still_runnable
                 AND coalesce(c_status, t.status) NOT IN ('completed', 'failed', 'cancelled')
                 THEN NULL
            WHEN new_token IS NOT NULL THEN holder
            ELSE t.owner END,
        claimed_until = CASE
            WHEN c_flags & 32 <> 0 AND NOT still_runnable
                 AND coalesce(c_status, t.status) NOT IN ('completed', 'failed', 'cancelled')
                 THEN NULL
            WHEN new_token IS NOT NULL THEN until
            ELSE t.claimed_until END,
        sequence = t.sequence + c_events,
        revision = t.revision + 1,
        commit_id = c_id,
        updated_at = now
    WHERE t.key = keys[n]
    RETURNING t.uid, t.sequence, t.revision, t.token, t.status, t.ended_at INTO r;
    o_uid := r.uid;
    o_sequence := r.sequence;
    o_revision := r.revision;
    o_token := r.token;
    IF p IS NOT NULL AND p <> 'null' THEN
        SELECT w.fired, w.undelivered, w.keys INTO fired, undelivered, keys
        FROM @write_contents(now, c_run, keys, n, r.uid, p, blobs) AS w;
    END IF;
    IF r.ended_at IS NULL AND r.status IN ('completed', 'failed', 'cancelled') THEN
        PERFORM @end_run(now, keys[n], c_run);
    END IF;
END $$;
