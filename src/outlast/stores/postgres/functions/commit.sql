-- The only write of runs: many commits in one call, each all or nothing, each with its own outcome.
--
--   1. lock   the runs, without waiting; a run that another transaction has locked is `busy`. A new id
--             is locked by an advisory lock, for the first 64 ids: the server reserves 64 locks per
--             connection. Other ids are left to the unique index, which waits for the transaction
--             that inserts the same id.
--   2. decide each commit by the rules of `outlast.model.commit_rules`, in the same order. Nothing is
--             written yet.
--   3. write  what is not refused. Plain commits touch only their own run: one statement for new runs,
--             one for steps (the most frequent kind), one for the rest. The others are written in
--             order, so that each sees the ones before it. Then all events in one statement.
--
-- `c_…` has one element per commit, `e_…` one per event. `doc` is a JSON array with the rarer contents of
-- each commit (or null); payloads in it are positions in `blobs`. It is empty if no commit has any. An
-- array whose elements all have the default (NULL; 0 for `c_seen`; 1 for `e_version`) is NULL. `ids` are
-- further runs to lock. `c_new_uid` is the uid of the life that a commit would create. `c_flags` are bits:
--   1 creates   2 upsert   4 replace   8 force   16 carry inbox   32 release   64 reopens
--   128 sets runnable_at   256 sets wait_kind   512 sets current_step   1024 has an element in doc
--   2048 plain if the run exists   4096 plain if it does not
--   8192 step: plain, and changes no indexed column unless the status changes
-- Rows come in any order.
CREATE OR REPLACE FUNCTION @commit(
    at bigint, shift bigint, atomic boolean, ids text[],
    c_run text[], c_id text[], c_uid text[], c_new_uid text[], c_expected bigint[],
    c_revision bigint[], c_token bigint[], c_flags int[], c_seen bigint[], c_status text[],
    c_workflow text[], c_wait_kind text[], c_current_step text[], c_runnable_at bigint[],
    c_events int[],
    e_life int[], e_position int[], e_id text[], e_type text[], e_version bigint[],
    e_step text[], e_timestamp bigint[], e_metadata text[], e_data bytea[], e_output bytea[],
    doc text, blobs bytea[]
)
RETURNS TABLE (
    n int, verdict text, o_uid text, o_sequence bigint, o_revision bigint, o_token bigint,
    detail text, still_runnable boolean, fired text[], undelivered text[]
)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET lock_timeout = '2s' SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now bigint;
    parts jsonb := doc::jsonb;
    has_parts int := CASE WHEN doc = '[]' THEN 0 ELSE cardinality(c_run) END;
    p jsonb;
    held bigint[];         -- keys of the locked runs of `ids`
    verdicts text[];       -- '' for a commit that will be written
    keys bigint[];         -- per life: key of the run, 0 for none
    bases bigint[];        -- per life: the sequence before its events
    tokens bigint[];       -- per life: the token of its events
    uids text[];           -- per commit: the uid
    revisions bigint[];
    details text[];        -- per commit: the status, or the detail of a refusal
    inboxes bigint[];      -- per commit: number of the last inbox item
    open boolean[];        -- per commit: whether the run has not ended
    numbers bigint[];      -- per commit: sequence of a duplicate event
    new_ids text[];        -- ids that seem free; the first `most_names` are locked
    most_names constant int := 64;
    ending bigint[];       -- keys of the runs that end with a plain commit
    k bigint;
    ends boolean;
    is_taken boolean;
    c record;
    x record;
    i int;
BEGIN
    IF ids <> '{}' THEN
        SELECT array_agg(l.key) INTO held FROM (
            SELECT a.key FROM @runs AS a WHERE a.id = ANY (ids) FOR UPDATE SKIP LOCKED
        ) AS l;
    END IF;

    -- decide
    SELECT array_agg(v.verdict), array_agg(coalesce(v.key, 0)), array_agg(coalesce(v.sequence, 0)),
           array_agg(coalesce(v.token, 0)), array_agg(coalesce(v.uid, v.new_uid)),
           array_agg(coalesce(v.revision, 0)), array_agg(v.status), array_agg(v.inbox),
           array_agg(v.ended_at IS NULL),
           array_agg(v.run) FILTER (WHERE v.verdict = '' AND v.key IS NULL)
    INTO verdicts, keys, bases, tokens, uids, revisions, details, inboxes, open, new_ids
    FROM (
        SELECT u.run, u.new_uid, h.*, CASE
            -- Not EXISTS: for a small table the planner chooses a sequential scan, and caches that plan.
            WHEN h.key IS NULL AND (SELECT true FROM @runs AS a WHERE a.id = u.run) THEN 'busy'
            WHEN h.commit_id = u.id THEN 'again'
            WHEN h.key IS NULL AND u.flags & 1 = 0 THEN 'not found'
            WHEN h.key IS NOT NULL AND u.flags & 1 <> 0 AND u.flags & 6 = 0 THEN 'exists'
            WHEN u.uid IS NOT NULL AND u.uid <> coalesce(h.uid, u.new_uid) THEN 'fenced'
            WHEN h.status IN ('completed', 'failed', 'cancelled') AND u.flags & 64 <> 0
                 AND u.flags & 5 <> 5 THEN 'closed'
            WHEN u.flags & 8 = 0 AND (coalesce(h.token, 0) <> 0 OR u.token IS NOT NULL)
                 AND u.token IS DISTINCT FROM coalesce(h.token, 0) THEN 'fenced'
            WHEN u.expected <> coalesce(h.sequence, 0) THEN 'conflict'
            WHEN u.revision <> coalesce(h.revision, 0) THEN 'stale'
            WHEN u.flags & 5 = 5 AND h.uid = u.new_uid AND h.revision > 0 THEN 'exists'
            WHEN h.key IS NULL AND u.n <= most_names AND NOT pg_try_advisory_xact_lock(
                hashtextextended(u.run, '@runs'::regclass::oid::bigint)
            ) THEN 'busy'
            ELSE ''
        END AS verdict
        FROM unnest(c_run, c_id, c_uid, c_new_uid, c_expected, c_revision, c_token, c_flags)
             WITH ORDINALITY AS u (run, id, uid, new_uid, expected, revision, token, flags, n)
        LEFT JOIN LATERAL (
            -- A locking read returns the current row, not the one of the snapshot.
            SELECT a.key, a.sequence, a.token, a.uid, a.revision, a.status, a.commit_id, a.inbox,
                   a.ended_at
            FROM @runs AS a WHERE a.id = u.run FOR UPDATE SKIP LOCKED
        ) AS h ON true
        ORDER BY u.n
    ) AS v;
    now := @now(at, shift);

    -- decide what depends on other rows
    FOR i IN 1 .. has_parts LOOP
        CONTINUE WHEN c_flags[i] & (4 | 1024) = 0 OR verdicts[i] <> '';
        p := parts -> (i - 1);
        IF p ? 'sends' AND EXISTS (
            SELECT t.key FROM @runs AS t
            WHERE t.id = ANY (ARRAY(
                SELECT s.run FROM jsonb_to_recordset(p -> 'sends') AS s (run text)
            ))
            EXCEPT SELECT * FROM unnest(held)
        ) THEN
            verdicts[i] := 'busy';
        END IF;
        IF p ? 'starts' THEN
            FOR x IN
                SELECT s.id FROM jsonb_to_recordset(p -> 'starts') AS s (id text)
                WHERE NOT EXISTS (SELECT FROM @runs AS t WHERE t.id = s.id)
            LOOP
                IF coalesce(cardinality(new_ids), 0) >= most_names OR pg_try_advisory_xact_lock(
                    hashtextextended(x.id, '@runs'::regclass::oid::bigint)
                ) THEN
                    new_ids := new_ids || x.id;
                ELSE
                    verdicts[i] := 'busy';
                END IF;
            END LOOP;
        END IF;
        IF c_flags[i] & 5 = 5 AND keys[i] > 0 AND NOT @lock_tree(c_run[i], true) THEN
            verdicts[i] := 'busy';
        END IF;
    END LOOP;

    -- An id that was free when the heads were read may have been taken before it was locked.
    IF new_ids IS NOT NULL THEN
        FOR x IN SELECT t.id FROM @runs AS t WHERE t.id = ANY (new_ids) LOOP
            FOR i IN 1 .. cardinality(c_run) LOOP
                IF verdicts[i] = '' AND (
                    (keys[i] = 0 AND c_run[i] = x.id) OR EXISTS (
                        SELECT FROM jsonb_to_recordset(parts -> (i - 1) -> 'starts') AS s (id text)
                        WHERE s.id = x.id
                    )
                ) THEN
                    verdicts[i] := 'busy';
                END IF;
            END LOOP;
        END LOOP;
    END IF;

    FOR x IN
        SELECT DISTINCT ON (u.life) u.life, u.id, e.sequence
        FROM unnest(e_life, e_position, e_id) AS u (life, position, id)
        CROSS JOIN LATERAL (
            SELECT d.sequence FROM @events AS d
            WHERE d.run_key = keys[u.life]
              AND (CASE WHEN octet_length(d.id) <= 1024 THEN d.id ELSE md5(d.id) END)
                = (CASE WHEN octet_length(u.id) <= 1024 THEN u.id ELSE md5(u.id) END)
            OFFSET 0
        ) AS e
        WHERE u.life <= cardinality(c_run) AND c_flags[u.life] & 5 <> 5
        ORDER BY u.life, u.position
    LOOP
        IF verdicts[x.life] = '' THEN
            verdicts[x.life] := 'duplicate';
            details[x.life] := x.id;
            numbers[x.life] := x.sequence;
        END IF;
    END LOOP;

    FOR i IN 1 .. has_parts LOOP
        CONTINUE WHEN verdicts[i] <> '' OR NOT parts -> (i - 1) ? 'finishes';
        FOR x IN
            SELECT * FROM jsonb_to_recordset(parts -> (i - 1) -> 'finishes')
                AS f (i int, task_hash text, token bigint)
        LOOP
            verdict := @check_task_claim(decode(x.task_hash, 'hex'), x.token);
            IF verdict <> '' THEN
                verdicts[i] := verdict;
                details[i] := x.i::text;
                EXIT;
            END IF;
        END LOOP;
    END LOOP;

    -- return the refusals
    IF atomic AND array_remove(array_remove(verdicts, ''), 'again') <> '{}' THEN
        verdicts := ARRAY(
            SELECT CASE u.v WHEN '' THEN 'held back' ELSE u.v END
            FROM unnest(verdicts) WITH ORDINALITY AS u (v, n) ORDER BY u.n
        );
    END IF;
    IF array_remove(verdicts, '') <> '{}' THEN
        FOR i IN
            SELECT u.n FROM unnest(verdicts) WITH ORDINALITY AS u (verdict, n) WHERE u.verdict <> ''
        LOOP
            n := i;
            verdict := verdicts[i];
            o_uid := uids[i];
            o_sequence := coalesce(numbers[i], bases[i]);
            o_revision := revisions[i];
            o_token := tokens[i];
            detail := details[i];
            still_runnable := false;
            keys[i] := 0;
            RETURN NEXT;
        END LOOP;
    END IF;

    -- write plain commits: new runs
    verdict := 'done';
    still_runnable := false;
    detail := NULL;
    IF new_ids IS NOT NULL THEN
        FOR n, k, o_uid, o_sequence, o_token, is_taken IN
            WITH new_runs AS (
                SELECT u.n, nextval('@runs_key_seq') AS key, u.run, u.id AS commit_id, u.events, b.*,
                       coalesce(u.workflow, b.workflow) AS a_workflow,
                       coalesce(u.status, b.status) AS a_status,
                       CASE WHEN u.flags & 256 <> 0 THEN u.wait_kind ELSE b.wait_kind END AS a_wait,
                       CASE WHEN u.flags & 512 <> 0 THEN u.current_step
                            ELSE b.current_step END AS a_step,
                       CASE WHEN u.flags & 128 <> 0 THEN u.runnable_at ELSE b.runnable_at END AS due,
                       CASE WHEN u.flags & 32 = 0 THEN p.claim ->> 'owner' END AS owner,
                       CASE WHEN u.flags & 32 = 0 THEN now + (p.claim ->> 'ttl')::bigint END AS until,
                       CASE WHEN p.claim IS NULL THEN 0 ELSE nextval('@tokens') END AS token
                FROM unnest(keys, verdicts, c_run, c_id, c_flags, c_status, c_workflow, c_wait_kind,
                            c_current_step, c_runnable_at, c_events)
                     WITH ORDINALITY AS u (key, verdict, run, id, flags, status, workflow,
                                           wait_kind, current_step, runnable_at, events, n)
                CROSS JOIN LATERAL jsonb_to_record(parts -> (u.n - 1)::int)
                    AS p (new_run jsonb, claim jsonb)
                CROSS JOIN LATERAL jsonb_to_record(p.new_run)
                    AS b (uid text, workflow text, parent text, status text, wait_kind text,
                          current_step text, runnable_at bigint, created_at bigint, version text,
                          definition text, queue text, priority bigint, attributes text, input int,
                          error text, recover_to text, rejected_by text, ctx int, result int,
                          halt_data int, hashes jsonb)
                WHERE u.verdict = '' AND u.key = 0 AND u.flags & 4096 <> 0
            ), inserted AS (
                INSERT INTO @runs (key, id, uid, workflow, parent, status, wait_kind, current_step,
                                   runnable_at, owner, token, claimed_until, sequence, revision,
                                   commit_id, created_at, updated_at)
                SELECT b.key, b.run, b.uid, b.a_workflow, b.parent, b.a_status, b.a_wait, b.a_step,
                       CASE WHEN b.due IS NOT NULL THEN greatest(b.due, now) END, b.owner, b.token,
                       b.until, b.events, 1, b.commit_id, coalesce(b.created_at, now), now
                FROM new_runs AS b
                ORDER BY b.run  -- against deadlock between two batches that wait for ids
                ON CONFLICT (id) DO NOTHING
                RETURNING key
            ), taken AS (  -- by another transaction, for which the insert has waited
                SELECT b.key FROM new_runs AS b EXCEPT SELECT p.key FROM inserted AS p
            ), detailed AS (
                INSERT INTO @run_details (key, version, definition, queue, priority, attributes,
                                          input, error, recover_to, rejected_by, ctx, result,
                                          halt_data)
                SELECT b.key, b.version, b.definition, b.queue, b.priority, b.attributes,
                       blobs[b.input], b.error, b.recover_to, b.rejected_by, blobs[b.ctx],
                       blobs[b.result], blobs[b.halt_data]
                FROM new_runs AS b WHERE b.key <> ALL (ARRAY(SELECT t.key FROM taken AS t))
            ), hashed AS (
                INSERT INTO @attributes (run_key, hash, created_at)
                SELECT b.key, decode(m.hash, 'hex'), coalesce(b.created_at, now)
                FROM new_runs AS b CROSS JOIN LATERAL jsonb_array_elements_text(b.hashes) AS m (hash)
                WHERE b.key <> ALL (ARRAY(SELECT t.key FROM taken AS t))
            )
            SELECT b.n, b.key, b.uid, b.events, b.token,
                   b.key = ANY (ARRAY(SELECT t.key FROM taken AS t)) FROM new_runs AS b
        LOOP
            IF is_taken THEN
                IF atomic THEN
                    RAISE lock_not_available USING MESSAGE = 'a name was taken meanwhile';
                END IF;
                verdict := 'busy';
                verdicts[n] := verdict;
                RETURN NEXT;
                verdict := 'done';
                CONTINUE;
            END IF;
            o_revision := 1;
            keys[n] := k;
            tokens[n] := o_token;
            verdicts[n] := verdict;
            RETURN NEXT;
        END LOOP;
    END IF;

    -- write plain commits: steps of existing runs
    FOR n, o_uid, o_sequence, o_revision, o_token IN
        UPDATE @runs AS t SET
            wait_kind = CASE WHEN w.flags & 256 <> 0 THEN w.wait_kind ELSE t.wait_kind END,
            current_step = CASE
                WHEN w.flags & 512 <> 0 THEN w.current_step ELSE t.current_step END,
            sequence = t.sequence + w.events,
            revision = t.revision + 1,
            commit_id = w.id,
            updated_at = now
        FROM unnest(keys, verdicts, c_id, c_flags, c_status, details, c_wait_kind, c_current_step,
                    c_events)
             WITH ORDINALITY AS w (key, verdict, id, flags, status, was, wait_kind, current_step,
                                   events, n)
        WHERE t.key = w.key AND w.verdict = '' AND w.flags & 8192 <> 0
          AND coalesce(w.status, w.was) = w.was
        RETURNING w.n, t.uid, t.sequence, t.revision, t.token
    LOOP
        verdicts[n] := verdict;
        RETURN NEXT;
    END LOOP;

    -- write plain commits: the rest, of existing runs
    IF '' = ANY (verdicts) THEN
        FOR n, o_uid, o_sequence, o_revision, o_token, still_runnable, ends IN
            WITH plain AS (
                SELECT u.*, a.ends, a.ends AND u.open AS ends_now,
                       u.flags & (32 | 128) <> 0 AND u.inbox > a.seen AND NOT a.ends
                       AND EXISTS (
                           SELECT FROM @inbox AS m WHERE m.run_key = u.key AND m.number > a.seen
                       ) AS unseen
                FROM unnest(keys, verdicts, c_id, c_flags, c_seen, c_status, c_workflow, c_wait_kind,
                            c_current_step, c_runnable_at, c_events, details, inboxes, open)
                     WITH ORDINALITY AS u (key, verdict, id, flags, seen, status, workflow, wait_kind,
                                           current_step, runnable_at, events, was, inbox, open, n)
                CROSS JOIN LATERAL (
                    SELECT coalesce(u.seen, 0) AS seen,
                           coalesce(u.status, u.was) IN ('completed', 'failed', 'cancelled') AS ends
                ) AS a
                WHERE u.verdict = '' AND u.flags & 2048 <> 0 AND u.key > 0
            )
            UPDATE @runs AS t SET
                workflow = coalesce(w.workflow, t.workflow),
                status = coalesce(w.status, t.status),
                wait_kind = CASE WHEN w.flags & 256 <> 0 THEN w.wait_kind ELSE t.wait_kind END,
                current_step = CASE
                    WHEN w.flags & 512 <> 0 THEN w.current_step ELSE t.current_step END,
                runnable_at = CASE
                    WHEN w.ends THEN NULL
                    WHEN w.unseen THEN now
                    WHEN w.flags & 128 = 0 THEN t.runnable_at
                    WHEN w.runnable_at IS NULL THEN NULL
                    ELSE greatest(w.runnable_at, now) END,
                owner = CASE
                    WHEN w.ends OR (w.flags & 32 <> 0 AND NOT w.unseen) THEN NULL
                    ELSE t.owner END,
                claimed_until = CASE
                    WHEN w.ends OR (w.flags & 32 <> 0 AND NOT w.unseen) THEN NULL
                    ELSE t.claimed_until END,
                ended_at = CASE WHEN w.ends_now THEN now ELSE t.ended_at END,
                sequence = t.sequence + w.events,
                revision = t.revision + 1,
                commit_id = w.id,
                updated_at = now
            FROM plain AS w WHERE t.key = w.key
            RETURNING w.n, t.uid, t.sequence, t.revision, t.token, w.unseen, w.ends_now
        LOOP
            IF ends THEN
                ending := ending || keys[n];
            END IF;
            verdicts[n] := verdict;
            RETURN NEXT;
        END LOOP;
    END IF;
    IF has_parts > 0 THEN
        PERFORM @update_details(array_agg(u.key), array_agg(u.part -> 'details'), blobs)
        FROM (
            SELECT w.key, parts -> (w.n - 1)::int AS part
            FROM unnest(keys, verdicts, c_flags) WITH ORDINALITY AS w (key, verdict, flags, n)
            WHERE w.verdict = 'done' AND w.flags & (1024 | 2048) = (1024 | 2048) AND w.key > 0
        ) AS u
        WHERE u.part ? 'details';
    END IF;
    IF ending IS NOT NULL THEN
        PERFORM @delete_open_work(ending, ARRAY(
            SELECT u.run FROM unnest(keys, c_run) AS u (key, run) WHERE u.key = ANY (ending)
        ));
    END IF;

    -- write the commits that are not plain
    IF '' = ANY (verdicts) THEN
        FOR c IN
            SELECT u.* FROM unnest(verdicts, c_run, c_id, c_flags, c_seen, c_status, c_workflow,
                                   c_wait_kind, c_current_step, c_runnable_at, c_events)
                 WITH ORDINALITY AS u (verdict, run, id, flags, seen, status, workflow, wait_kind,
                                       current_step, runnable_at, events, n)
            WHERE u.verdict = ''
            ORDER BY u.n
        LOOP
            n := c.n;
            SELECT w.* INTO x FROM @write_commit(
                now, keys, n, c.run, c.id, c.flags, coalesce(c.seen, 0), c.status, c.workflow, c.wait_kind,
                c.current_step, c.runnable_at, c.events, parts -> (n - 1), blobs
            ) AS w;
            keys := x.keys;
            bases[n] := x.o_sequence - c.events;
            tokens[n] := x.o_token;
            verdict := 'done';
            o_uid := x.o_uid;
            o_sequence := x.o_sequence;
            o_revision := x.o_revision;
            o_token := x.o_token;
            detail := NULL;
            still_runnable := x.still_runnable;
            fired := x.fired;
            undelivered := x.undelivered;
            RETURN NEXT;
        END LOOP;
    END IF;

    -- write the events of all commits
    INSERT INTO @events (run_key, sequence, id, type, version, step_name, timestamp, token,
                         metadata, data, output)
    SELECT keys[u.life], coalesce(bases[u.life], 0) + u.position, u.id, u.type, coalesce(u.version, 1),
           u.step, coalesce(u.timestamp, now), coalesce(tokens[u.life], 0), u.metadata, u.data, u.output
    FROM unnest(e_life, e_position, e_id, e_type, e_version, e_step, e_timestamp, e_metadata,
                e_data, e_output)
         AS u (life, position, id, type, version, step, timestamp, metadata, data, output)
    WHERE keys[u.life] > 0;
END $$;
