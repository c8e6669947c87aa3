-- The one write: many commits in one call, each all or nothing, each with an answer of its own.
--
--   1. lock   the runs, without waiting; a run that somebody else has locked is `busy`. A run that is
--             not there is locked by a lock on its name, as long as these are few: the server has
--             places for 64 locks a connection. Names beyond that are left to the unique index,
--             which waits for a transaction that is about to take one.
--   2. decide every commit on what the locks hold still. Nothing has been written.
--   3. write  those that were not refused: the plain ones, which touch nothing but their own run,
--             in one statement for those that begin, one for steps, which most are, and one for
--             the rest, the others in order, so that each sees what those before it did; then the
--             events of all in one statement.
--
-- `c_…` has one element per commit, `e_…` one per event. `doc` is a JSON array with the rarer
-- parts of each commit (or null), whose payloads are numbers of `blobs`; it is empty if no commit has
-- any. An array that would be empty, or hold nothing but NULL, or 0 as what was seen, or 1 as the version,
-- is NULL.
-- `ids` are runs besides those of the commits. `c_born` is the uid of the life that a commit would begin. `c_flags` are bits:
--   1 creates   2 upsert   4 replace   8 force   16 carry inbox   32 release   64 reopens
--   128 sets runnable_at   256 sets wait_kind   512 sets current_step   1024 has an element in doc
--   2048 plain, if the run is there   4096 plain, if it is not
--   8192 a step: plain, and nothing that an index has is changed, if the status is not
-- The answers come in any order.
CREATE FUNCTION @commit_1(
    at bigint, shift bigint, atomic boolean, ids text[],
    c_run text[], c_id text[], c_uid text[], c_born text[], c_expected bigint[],
    c_revision bigint[], c_token bigint[], c_flags int[], c_seen bigint[], c_status text[],
    c_workflow text[], c_wait_kind text[], c_current_step text[], c_runnable_at bigint[],
    c_events int[],
    e_life int[], e_position int[], e_id text[], e_type text[], e_version bigint[],
    e_step text[], e_timestamp bigint[], e_metadata text[], e_data bytea[], e_output bytea[],
    doc text, blobs bytea[]
)
RETURNS TABLE (
    n int, verdict text, o_uid text, o_sequence bigint, o_revision bigint, o_token bigint,
    detail text, still boolean, fired text[], undelivered text[]
)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET lock_timeout = '2s' SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now bigint;
    parts jsonb := doc::jsonb;
    has_parts int := CASE WHEN doc = '[]' THEN 0 ELSE cardinality(c_run) END;
    p jsonb;
    held bigint[];         -- keys of the runs besides that are locked
    verdicts text[];       -- '' for a commit that is to be written
    keys bigint[];         -- per life: of the run, 0 for none
    bases bigint[];        -- per life: the sequence before its events
    tokens bigint[];       -- per life: the token of its events
    lives text[];          -- per commit: the uid
    revisions bigint[];
    details text[];        -- per commit: what there is to say; the status
    inboxes bigint[];      -- per commit: how many items the run has had
    open boolean[];        -- per commit: whether the run has not ended
    numbers bigint[];      -- per commit: where a duplicate is
    unborn text[];         -- names that may be taken now; the first `most_names` are locked
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
           array_agg(coalesce(v.token, 0)), array_agg(coalesce(v.uid, v.born)),
           array_agg(coalesce(v.revision, 0)), array_agg(v.status), array_agg(v.inbox),
           array_agg(v.ended_at IS NULL),
           array_agg(v.run) FILTER (WHERE v.verdict = '' AND v.key IS NULL)
    INTO verdicts, keys, bases, tokens, lives, revisions, details, inboxes, open, unborn
    FROM (
        SELECT u.run, u.born, h.*, CASE
            -- Not by EXISTS: while a table is small the server would plan to read all of it for that,
            -- and keep the plan as it grows.
            WHEN h.key IS NULL AND (SELECT true FROM @runs AS a WHERE a.id = u.run) THEN 'busy'
            WHEN h.commit_id = u.id THEN 'again'
            WHEN h.key IS NULL AND u.flags & 1 = 0 THEN 'not found'
            WHEN h.key IS NOT NULL AND u.flags & 1 <> 0 AND u.flags & 6 = 0 THEN 'exists'
            WHEN u.uid IS NOT NULL AND u.uid <> coalesce(h.uid, u.born) THEN 'fenced'
            WHEN h.status IN ('completed', 'failed', 'cancelled') AND u.flags & 64 <> 0
                 AND u.flags & 5 <> 5 THEN 'closed'
            WHEN u.flags & 8 = 0 AND (coalesce(h.token, 0) <> 0 OR u.token IS NOT NULL)
                 AND u.token IS DISTINCT FROM coalesce(h.token, 0) THEN 'fenced'
            WHEN u.expected <> coalesce(h.sequence, 0) THEN 'conflict'
            WHEN u.revision <> coalesce(h.revision, 0) THEN 'stale'
            WHEN u.flags & 5 = 5 AND h.uid = u.born AND h.revision > 0 THEN 'exists'
            WHEN h.key IS NULL AND u.n <= most_names AND NOT pg_try_advisory_xact_lock(
                hashtextextended(u.run, '@runs'::regclass::oid::bigint)
            ) THEN 'busy'
            ELSE ''
        END AS verdict
        FROM unnest(c_run, c_id, c_uid, c_born, c_expected, c_revision, c_token, c_flags)
             WITH ORDINALITY AS u (run, id, uid, born, expected, revision, token, flags, n)
        LEFT JOIN LATERAL (
            -- What a lock gives is the row as it stands, also if it was changed a moment ago.
            SELECT a.key, a.sequence, a.token, a.uid, a.revision, a.status, a.commit_id, a.inbox,
                   a.ended_at
            FROM @runs AS a WHERE a.id = u.run FOR UPDATE SKIP LOCKED
        ) AS h ON true
        ORDER BY u.n
    ) AS v;
    now := @now_1(at, shift);

    -- what needs a look at other rows
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
                IF coalesce(cardinality(unborn), 0) >= most_names OR pg_try_advisory_xact_lock(
                    hashtextextended(x.id, '@runs'::regclass::oid::bigint)
                ) THEN
                    unborn := unborn || x.id;
                ELSE
                    verdicts[i] := 'busy';
                END IF;
            END LOOP;
        END IF;
        IF c_flags[i] & 5 = 5 AND keys[i] > 0 AND NOT @lock_tree_1(c_run[i], true) THEN
            verdicts[i] := 'busy';
        END IF;
    END LOOP;

    -- A name that was free when the heads were read may have been taken before it was locked.
    IF unborn IS NOT NULL THEN
        FOR x IN SELECT t.id FROM @runs AS t WHERE t.id = ANY (unborn) LOOP
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
                AS f (i int, place text, token bigint)
        LOOP
            verdict := @hold_task_1(decode(x.place, 'hex'), x.token);
            IF verdict <> '' THEN
                verdicts[i] := verdict;
                details[i] := x.i::text;
                EXIT;
            END IF;
        END LOOP;
    END LOOP;

    -- answer the refused
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
            o_uid := lives[i];
            o_sequence := coalesce(numbers[i], bases[i]);
            o_revision := revisions[i];
            o_token := tokens[i];
            detail := details[i];
            still := false;
            keys[i] := 0;
            RETURN NEXT;
        END LOOP;
    END IF;

    -- write the plain ones: lives that begin
    verdict := 'done';
    still := false;
    detail := NULL;
    IF unborn IS NOT NULL THEN
        FOR n, k, o_uid, o_sequence, o_token, is_taken IN
            WITH born AS (
                SELECT u.n, nextval('@runs_key_seq') AS key, u.run, u.id AS commit_id, u.events, b.*,
                       coalesce(u.workflow, b.workflow) AS a_workflow,
                       coalesce(u.status, b.status) AS a_status,
                       CASE WHEN u.flags & 256 <> 0 THEN u.wait_kind ELSE b.wait_kind END AS a_wait,
                       CASE WHEN u.flags & 512 <> 0 THEN u.current_step
                            ELSE b.current_step END AS a_step,
                       CASE WHEN u.flags & 128 <> 0 THEN u.runnable_at ELSE b.runnable_at END AS due,
                       CASE WHEN u.flags & 32 = 0 THEN p.hold ->> 'owner' END AS owner,
                       CASE WHEN u.flags & 32 = 0 THEN now + (p.hold ->> 'ttl')::bigint END AS until,
                       CASE WHEN p.hold IS NULL THEN 0 ELSE nextval('@tokens') END AS token
                FROM unnest(keys, verdicts, c_run, c_id, c_flags, c_status, c_workflow, c_wait_kind,
                            c_current_step, c_runnable_at, c_events)
                     WITH ORDINALITY AS u (key, verdict, run, id, flags, status, workflow,
                                           wait_kind, current_step, runnable_at, events, n)
                CROSS JOIN LATERAL jsonb_to_record(parts -> (u.n - 1)::int)
                    AS p (birth jsonb, hold jsonb)
                CROSS JOIN LATERAL jsonb_to_record(p.birth)
                    AS b (uid text, workflow text, parent text, status text, wait_kind text,
                          current_step text, runnable_at bigint, created_at bigint, version text,
                          definition text, queue text, priority bigint, attributes text, input int,
                          error text, recover_to text, rejected_by text, ctx int, result int,
                          halt_data int, marks jsonb)
                WHERE u.verdict = '' AND u.key = 0 AND u.flags & 4096 <> 0
            ), placed AS (
                INSERT INTO @runs (key, id, uid, workflow, parent, status, wait_kind, current_step,
                                   runnable_at, owner, token, claimed_until, sequence, revision,
                                   commit_id, created_at, updated_at)
                SELECT b.key, b.run, b.uid, b.a_workflow, b.parent, b.a_status, b.a_wait, b.a_step,
                       CASE WHEN b.due IS NOT NULL THEN greatest(b.due, now) END, b.owner, b.token,
                       b.until, b.events, 1, b.commit_id, coalesce(b.created_at, now), now
                FROM born AS b
                ORDER BY b.run  -- two batches that wait for names never wait for each other
                ON CONFLICT (id) DO NOTHING
                RETURNING key
            ), taken AS (  -- by another transaction, which the insert has waited for
                SELECT b.key FROM born AS b EXCEPT SELECT p.key FROM placed AS p
            ), detailed AS (
                INSERT INTO @run_details (key, version, definition, queue, priority, attributes,
                                          input, error, recover_to, rejected_by, ctx, result,
                                          halt_data)
                SELECT b.key, b.version, b.definition, b.queue, b.priority, b.attributes,
                       blobs[b.input], b.error, b.recover_to, b.rejected_by, blobs[b.ctx],
                       blobs[b.result], blobs[b.halt_data]
                FROM born AS b WHERE b.key <> ALL (ARRAY(SELECT t.key FROM taken AS t))
            ), marked AS (
                INSERT INTO @attributes (run_key, mark, created_at)
                SELECT b.key, decode(m.mark, 'hex'), coalesce(b.created_at, now)
                FROM born AS b CROSS JOIN LATERAL jsonb_array_elements_text(b.marks) AS m (mark)
                WHERE b.key <> ALL (ARRAY(SELECT t.key FROM taken AS t))
            )
            SELECT b.n, b.key, b.uid, b.events, b.token,
                   b.key = ANY (ARRAY(SELECT t.key FROM taken AS t)) FROM born AS b
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

    -- write the plain ones: steps of runs that are there
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

    -- write the plain ones: others of runs that are there
    IF '' = ANY (verdicts) THEN
        FOR n, o_uid, o_sequence, o_revision, o_token, still, ends IN
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
        PERFORM @change_details_1(array_agg(u.key), array_agg(u.part -> 'details'), blobs)
        FROM (
            SELECT w.key, parts -> (w.n - 1)::int AS part
            FROM unnest(keys, verdicts, c_flags) WITH ORDINALITY AS w (key, verdict, flags, n)
            WHERE w.verdict = 'done' AND w.flags & (1024 | 2048) = (1024 | 2048) AND w.key > 0
        ) AS u
        WHERE u.part ? 'details';
    END IF;
    IF ending IS NOT NULL THEN
        PERFORM @drop_work_1(ending, ARRAY(
            SELECT u.run FROM unnest(keys, c_run) AS u (key, run) WHERE u.key = ANY (ending)
        ));
    END IF;

    -- write the others
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
            SELECT w.* INTO x FROM @write_commit_1(
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
            still := x.still;
            fired := x.fired;
            undelivered := x.undelivered;
            RETURN NEXT;
        END LOOP;
    END IF;

    -- the events of all
    INSERT INTO @events (run_key, sequence, id, type, version, step_name, timestamp, token,
                         metadata, data, output)
    SELECT keys[u.life], coalesce(bases[u.life], 0) + u.position, u.id, u.type, coalesce(u.version, 1),
           u.step, coalesce(u.timestamp, now), coalesce(tokens[u.life], 0), u.metadata, u.data, u.output
    FROM unnest(e_life, e_position, e_id, e_type, e_version, e_step, e_timestamp, e_metadata,
                e_data, e_output)
         AS u (life, position, id, type, version, step, timestamp, metadata, data, output)
    WHERE keys[u.life] > 0;
END $$;

-- Writes one commit that is more than plain, but for its events. `keys` learns of new lives.
CREATE FUNCTION @write_commit_1(
    now bigint, INOUT keys bigint[], n int, c_run text, c_id text, c_flags int, c_seen bigint,
    c_status text, c_workflow text, c_wait_kind text, c_current_step text, c_runnable_at bigint,
    c_events int, p jsonb, blobs bytea[],
    OUT o_uid text, OUT o_sequence bigint, OUT o_revision bigint, OUT o_token bigint,
    OUT still boolean, OUT fired text[], OUT undelivered text[]
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
            -- Out of the way, before the old life is forgotten.
            UPDATE @inbox AS t SET run_key = -old WHERE t.run_key = old;
            -- The receipts of the last items, and of all that wait; the others go with the old life.
            UPDATE @receipts AS t SET run_key = -old WHERE t.run_key = old
               AND (t.number > r.inbox - 1000 OR EXISTS (
                   SELECT FROM @inbox AS m WHERE m.run_key = -old AND m.number = t.number));
        END IF;
        IF p -> 'birth' ->> 'status' IN ('completed', 'failed', 'cancelled') THEN
            PERFORM @forget_tree_1(c_run);
        ELSE
            PERFORM @forget_life_1(c_run, p ? 'carry_tree');
        END IF;
        keys[n] := @begin_run_1(now, p -> 'birth', blobs);
        IF c_flags & 16 <> 0 THEN
            UPDATE @inbox AS t SET run_key = keys[n] WHERE t.run_key = -old;
            UPDATE @receipts AS t SET run_key = keys[n] WHERE t.run_key = -old;
            UPDATE @runs AS t SET inbox = r.inbox, runnable_at = CASE
                WHEN EXISTS (SELECT FROM @inbox AS m WHERE m.run_key = keys[n]) THEN now
                ELSE t.runnable_at END
            WHERE t.key = keys[n];
        END IF;
    ELSIF old = 0 THEN
        keys[n] := @begin_run_1(now, p -> 'birth', blobs);
    END IF;
    IF keys[n] IS NULL THEN
        RAISE lock_not_available USING MESSAGE = 'a name was taken meanwhile';
    END IF;

    -- the claim
    IF c_flags & 8 <> 0 THEN
        new_token := nextval('@tokens');
    END IF;
    IF p ? 'hold' THEN
        new_token := nextval('@tokens');
        holder := p -> 'hold' ->> 'owner';
        until := now + (p -> 'hold' ->> 'ttl')::bigint;
    END IF;

    -- what it consumes
    IF p ? 'consumes' THEN
        DELETE FROM @inbox AS t WHERE t.run_key = keys[n] AND t.number = ANY (ARRAY(
            SELECT f.number::bigint FROM jsonb_array_elements(p -> 'consumes') AS f (number)
        ));
    END IF;

    -- the record
    still := false;
    IF c_flags & (32 | 128) <> 0 THEN
        SELECT t.inbox > c_seen
               AND coalesce(c_status, t.status) NOT IN ('completed', 'failed', 'cancelled')
               AND EXISTS (SELECT FROM @inbox AS m WHERE m.run_key = t.key AND m.number > c_seen)
        INTO still FROM @runs AS t WHERE t.key = keys[n];
    END IF;
    UPDATE @runs AS t SET
        workflow = coalesce(c_workflow, t.workflow),
        status = coalesce(c_status, t.status),
        wait_kind = CASE WHEN c_flags & 256 <> 0 THEN c_wait_kind ELSE t.wait_kind END,
        current_step = CASE WHEN c_flags & 512 <> 0 THEN c_current_step ELSE t.current_step END,
        runnable_at = CASE
            WHEN still THEN now
            WHEN c_flags & 128 = 0 THEN t.runnable_at
            WHEN c_runnable_at IS NULL THEN NULL
            ELSE greatest(c_runnable_at, now) END,
        token = coalesce(new_token, t.token),
        owner = CASE
            WHEN c_flags & 32 <> 0 AND NOT still
                 AND coalesce(c_status, t.status) NOT IN ('completed', 'failed', 'cancelled')
                 THEN NULL
            WHEN new_token IS NOT NULL THEN holder
            ELSE t.owner END,
        claimed_until = CASE
            WHEN c_flags & 32 <> 0 AND NOT still
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
        FROM @write_parts_1(now, c_run, keys, n, r.uid, p, blobs) AS w;
    END IF;
    IF r.ended_at IS NULL AND r.status IN ('completed', 'failed', 'cancelled') THEN
        PERFORM @end_run_1(now, keys[n], c_run);
    END IF;
END $$;

-- Alters what runs have to say: `ds` has what is new of each.
CREATE FUNCTION @change_details_1(ks bigint[], ds jsonb[], blobs bytea[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @run_details AS t SET
        version = CASE WHEN d ? 'version' THEN d ->> 'version' ELSE t.version END,
        definition = CASE WHEN d ? 'definition' THEN d ->> 'definition' ELSE t.definition END,
        queue = CASE WHEN d ? 'queue' THEN d ->> 'queue' ELSE t.queue END,
        priority = CASE WHEN d ? 'priority' THEN (d ->> 'priority')::bigint ELSE t.priority END,
        attributes = CASE WHEN d ? 'attributes' THEN d ->> 'attributes' ELSE t.attributes END,
        input = CASE WHEN d ? 'input' THEN blobs[(d ->> 'input')::int] ELSE t.input END,
        error = CASE WHEN d ? 'error' THEN d ->> 'error' ELSE t.error END,
        recover_to = CASE WHEN d ? 'recover_to' THEN d ->> 'recover_to' ELSE t.recover_to END,
        rejected_by = CASE WHEN d ? 'rejected_by' THEN d ->> 'rejected_by' ELSE t.rejected_by END,
        ctx = CASE WHEN d ? 'ctx' THEN blobs[(d ->> 'ctx')::int] ELSE t.ctx END,
        result = CASE WHEN d ? 'result' THEN blobs[(d ->> 'result')::int] ELSE t.result END,
        halt_data = CASE
            WHEN d ? 'halt_data' THEN blobs[(d ->> 'halt_data')::int] ELSE t.halt_data END
    FROM unnest(ks, ds) AS u (key, d) WHERE t.key = u.key;
END $$;

-- What ended runs leave undone: tasks, and timers that have not fired.
CREATE FUNCTION @drop_work_1(ks bigint[], runs text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- The indexes leave out tasks of no run, and want to be told.
    DELETE FROM @tasks AS t WHERE t.run_id = ANY (runs) AND t.run_id <> '';
    DELETE FROM @dead_tasks AS t WHERE t.run_id = ANY (runs) AND t.run_id <> '';
    DELETE FROM @timers AS t WHERE t.run_key = ANY (ks) AND NOT t.fired;
END $$;

-- What a commit brings besides events and record. A child that begins gets its key into `keys`.
CREATE FUNCTION @write_parts_1(
    now bigint, run text, INOUT keys bigint[], n int, life text, p jsonb, blobs bytea[],
    OUT fired text[], OUT undelivered text[]
)
LANGUAGE plpgsql AS $$
DECLARE
    k bigint := keys[n];
    child bigint;
    d jsonb;
    x record;
    said text;
BEGIN
    fired := '{}';
    undelivered := '{}';
    d := p -> 'details';
    IF d IS NOT NULL THEN
        PERFORM @change_details_1(ARRAY[k], ARRAY[d], blobs);
        IF d ? 'attributes' THEN
            DELETE FROM @attributes AS t WHERE t.run_key = k;
            INSERT INTO @attributes (run_key, mark, created_at)
            SELECT k, decode(m.mark, 'hex'), t.created_at
            FROM @runs AS t, jsonb_array_elements_text(d -> 'marks') AS m (mark)
            WHERE t.key = k;
        END IF;
    END IF;
    -- Children first: an item may be for one of them. In the order of their ids: two who wait for names
    -- never wait for each other.
    FOR x IN
        SELECT s.birth, (s.birth ->> 'life')::int AS life, s.birth ->> 'id' AS id,
               (s.birth ->> 'events')::int AS events, s.birth ->> 'status' AS status
        FROM jsonb_array_elements(p -> 'starts') WITH ORDINALITY AS s (birth, place)
        ORDER BY (s.birth ->> 'id') COLLATE "C", s.place
    LOOP
        child := @begin_run_1(now, x.birth, blobs);
        CONTINUE WHEN child IS NULL;
        keys[x.life] := child;
        IF x.events > 0 THEN
            UPDATE @runs AS t SET sequence = x.events WHERE t.key = child;
        END IF;
        IF x.status IN ('completed', 'failed', 'cancelled') THEN
            PERFORM @end_run_1(now, child, x.id);
        END IF;
    END LOOP;
    FOR x IN
        SELECT * FROM jsonb_to_recordset(p -> 'sends')
            AS s (run text, uid text, id text, kind text, name text, sender text, data int)
    LOOP
        SELECT v.verdict INTO said
        FROM @deliver_1(now, x.run, x.uid, x.id, x.kind, x.name, x.sender, blobs[x.data]) AS v;
        IF said NOT IN ('done', 'again') THEN
            undelivered := undelivered || x.id;
        END IF;
    END LOOP;
    IF p ? 'finishes' THEN
        DELETE FROM @tasks AS t WHERE t.place = ANY (ARRAY(
            SELECT decode(f.place, 'hex') FROM jsonb_to_recordset(p -> 'finishes') AS f (place text)
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
        PERFORM @insert_tasks_1(now, now, p -> 'tasks', life, blobs);
    END IF;
    IF p ? 'dead' THEN
        PERFORM @insert_dead_tasks_1(now, p -> 'dead', life, blobs);
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
        FROM jsonb_array_elements(p -> 'entries') WITH ORDINALITY AS e (value, place),
             jsonb_to_record(e.value)
                 AS f (timestamp bigint, id text, step_id text, step_type text, action text,
                       duration_ms bigint, error text, input int, output int)
        ORDER BY e.place;
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
