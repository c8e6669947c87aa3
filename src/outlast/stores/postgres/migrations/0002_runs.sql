-- What happens to runs, decided and done where the rows are: one call, one round trip. These are
-- the verdicts of `outlast.model.commit_rules` in its order; the conformance kit holds both to it.
--
-- Functions have numbers: a newer outlast adds others beside them, and processes of both versions
-- work on the same tables. Those that are called from outside plan for tables that grow: without
-- statistics PostgreSQL takes a new table for a small one and would keep a plan that reads all of it.
-- For the same reason rows are looked up by LATERAL or ANY, which leave no choice of the order.

-- The store's time: `at` if a test gives it, else the server's, moved by `shift`.
CREATE FUNCTION @now_1(at bigint, shift bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT coalesce(at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + shift)
$$;

-- A new life, from its record. Gives its key.
CREATE FUNCTION @begin_run_1(now bigint, b jsonb, blobs bytea[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    k bigint;
    born bigint := coalesce((b->>'created_at')::bigint, now);
    due bigint := (b->>'runnable_at')::bigint;
BEGIN
    INSERT INTO @runs (id, uid, workflow, parent, status, wait_kind, current_step, runnable_at,
                       created_at, updated_at)
    VALUES (b->>'id', b->>'uid', b->>'workflow', b->>'parent', b->>'status', b->>'wait_kind',
            b->>'current_step', CASE WHEN due IS NOT NULL THEN greatest(due, now) END, born, now)
    RETURNING key INTO k;
    INSERT INTO @run_details (key, version, definition, queue, priority, attributes, input, error,
                              recover_to, rejected_by, ctx, result, halt_data)
    VALUES (k, b->>'version', b->>'definition', b->>'queue', (b->>'priority')::bigint,
            b->>'attributes', blobs[(b->>'input')::int], b->>'error', b->>'recover_to', b->>'rejected_by',
            blobs[(b->>'ctx')::int], blobs[(b->>'result')::int], blobs[(b->>'halt_data')::int]);
    IF b ? 'marks' THEN
        INSERT INTO @attributes (run_key, mark, created_at)
        SELECT k, decode(m.mark, 'hex'), born
        FROM jsonb_array_elements_text(b->'marks') AS m (mark);
    END IF;
    RETURN k;
END $$;

-- The run has ended: nobody owns it, nothing wakes it, no task of it is left to be done.
CREATE FUNCTION @end_run_1(now bigint, k bigint, run text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @runs SET runnable_at = NULL, owner = NULL, claimed_until = NULL, ended_at = now
    WHERE key = k;
    -- The indexes leave out tasks of no run, and want to be told.
    DELETE FROM @tasks WHERE run_id = run AND run_id <> '';
    DELETE FROM @dead_tasks WHERE run_id = run AND run_id <> '';
    DELETE FROM @timers WHERE run_key = k AND NOT fired;
END $$;

-- Whether a run has ended for good: one that is being moved is closed, but may not have arrived.
CREATE FUNCTION @is_over_1(status text, wait_kind text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT status IN ('completed', 'failed', 'cancelled')
       AND NOT (status = 'cancelled' AND wait_kind IS NOT DISTINCT FROM 'moving')
$$;

-- Removes runs and all they own, except for facts. The caller holds the locks.
CREATE FUNCTION @forget_runs_1(ks bigint[], ids text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM @keys WHERE run_id = ANY (ids);
    DELETE FROM @events WHERE run_key = ANY (ks);
    DELETE FROM @inbox WHERE run_key = ANY (ks);
    DELETE FROM @receipts WHERE run_key = ANY (ks);
    DELETE FROM @timers WHERE run_key = ANY (ks);
    DELETE FROM @entries WHERE run_key = ANY (ks);
    DELETE FROM @activities WHERE run_key = ANY (ks);
    DELETE FROM @snapshots WHERE run_key = ANY (ks);
    DELETE FROM @attributes WHERE run_key = ANY (ks);
    DELETE FROM @run_details WHERE key = ANY (ks);
    DELETE FROM @runs WHERE key = ANY (ks);
    DELETE FROM @tasks WHERE run_id = ANY (ids) AND run_id <> '';
    DELETE FROM @dead_tasks WHERE run_id = ANY (ids) AND run_id <> '';
END $$;

-- Removes a run with its descendants and all they own; whether the run was there. The caller holds
-- the locks. DEL follows "~" in every encoding, so a range finds the ids that go on with "~".
CREATE FUNCTION @forget_tree_1(run text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    ks bigint[];
    ids text[];
BEGIN
    SELECT array_agg(key), array_agg(id) INTO ks, ids FROM @runs
    WHERE id = run OR (id > run || '~' AND id < run || chr(127));
    DELETE FROM @keys WHERE run_id = run OR (run_id > run || '~' AND run_id < run || chr(127));
    IF ks IS NULL THEN
        RETURN false;
    END IF;
    PERFORM @forget_runs_1(ks, ids);
    IF NOT run = ANY (ids) THEN
        RETURN false;
    END IF;
    DELETE FROM @facts WHERE root = run;
    RETURN true;
END $$;

-- Removes the life of a run that is replaced, and its descendants that have ended, unless they are to
-- stay: those that have not go on, and keep the facts of the tree. The caller holds the locks.
CREATE FUNCTION @forget_life_1(run text, all_stay boolean) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ks bigint[];
    ids text[];
BEGIN
    SELECT array_agg(key), array_agg(id) INTO ks, ids FROM @runs
    WHERE id = run
       OR (NOT all_stay AND id > run || '~' AND id < run || chr(127)
           AND @is_over_1(status, wait_kind));
    PERFORM @forget_runs_1(ks, ids);
    IF NOT EXISTS (SELECT FROM @runs WHERE id > run || '~' AND id < run || chr(127)) THEN
        DELETE FROM @keys WHERE run_id > run || '~' AND run_id < run || chr(127);
        DELETE FROM @facts WHERE root = run;
    END IF;
END $$;

-- Locks a run and its descendants, or only those that have ended, without waiting; false if another
-- transaction holds one of them.
CREATE FUNCTION @lock_tree_1(run text, only_over boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    held bigint[];
BEGIN
    SELECT coalesce(array_agg(key), '{}') INTO held FROM (
        SELECT key FROM @runs
        WHERE (id = run OR (id > run || '~' AND id < run || chr(127)))
          AND (NOT only_over OR id = run OR @is_over_1(status, wait_kind))
        ORDER BY id FOR UPDATE SKIP LOCKED
    ) AS mine;
    -- What is locked stays there, so that the numbers say enough.
    RETURN cardinality(held) = (
        SELECT count(*) FROM @runs
        WHERE (id = run OR (id > run || '~' AND id < run || chr(127)))
          AND (NOT only_over OR id = run OR @is_over_1(status, wait_kind))
    );
END $$;

-- Puts one item into an inbox and makes its run runnable now. The caller holds the run's lock, unless
-- the run began after the caller looked for it: so it is locked here, and read as it is then.
CREATE FUNCTION @deliver_1(
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

-- Locks a run, if it is there, waiting for a while; false if somebody else holds it for longer.
CREATE FUNCTION @lock_run_1(run text) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM FROM @runs WHERE id = run FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        RETURN true;
    END IF;
    PERFORM FROM @runs WHERE id = run FOR UPDATE;
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;

-- Locks runs that are there, waiting for up to `ms` milliseconds in all: in the order of their ids, so that two
-- that wait never wait for each other. What stays locked is left to the caller's next statement to find.
CREATE FUNCTION @wait_for_1(ids text[], ms int) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '1s' AS $$
DECLARE
    deadline timestamptz := clock_timestamp() + ms * interval '1 millisecond';
    run text;
    ms_left int;
BEGIN
    FOR run IN SELECT DISTINCT u.id COLLATE "C" AS id FROM unnest(ids) AS u (id) ORDER BY 1 LOOP
        PERFORM FROM @runs AS r WHERE r.id = run FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN FOUND;
        ms_left := 1000 * extract(epoch FROM deadline - clock_timestamp());
        EXIT WHEN ms_left < 1;
        PERFORM set_config('lock_timeout', ms_left || 'ms', true);
        BEGIN
            PERFORM FROM @runs AS r WHERE r.id = run FOR UPDATE;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            RETURN false;
        END;
    END LOOP;
    RETURN true;
END $$;

-- Sends items, and removes the tasks that they are the results of, or keeps them for good. One row an item; a row 0 with
-- the number of a claim says that this claim was lost, or is busy, and that nothing was done. The tasks of a run that is
-- busy are left alone: who sends its item again needs them. Those of a run that refuses an item are not kept.
CREATE FUNCTION @send_1(at bigint, shift bigint, sends text, finishes text, blobs bytea[])
RETURNS TABLE (n int, verdict text, given bigint, current bigint, stands text)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint;
    busy text[] := '{}';
    refusing text[] := '{}';
    target record;
    s record;
    f record;
BEGIN
    -- In the order of their ids, so that two senders never wait for each other; and before the tasks, so that
    -- who ends a run, and removes its tasks, and who sends to it do not either.
    FOR target IN
        SELECT DISTINCT x.run COLLATE "C" AS id FROM jsonb_to_recordset(sends::jsonb) AS x (run text)
        ORDER BY 1
    LOOP
        IF NOT @lock_run_1(target.id) THEN
            busy := busy || target.id;
        END IF;
    END LOOP;
    FOR f IN
        SELECT * FROM jsonb_to_recordset(finishes::jsonb)
            AS x (i int, place text, token bigint, keep boolean)
    LOOP
        verdict := @hold_task_1(decode(f.place, 'hex'), f.token);
        IF verdict = '' AND f.keep AND EXISTS (
            SELECT FROM @tasks AS t
            WHERE t.place = decode(f.place, 'hex')
              AND @gave_place_1(t.queue, t.claimed_until, at, shift)
        ) THEN
            verdict := 'lost';
        END IF;
        IF verdict <> '' THEN
            n := 0;
            given := f.i;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
    now := @now_1(at, shift);
    FOR s IN
        SELECT * FROM jsonb_to_recordset(sends::jsonb)
            AS x (i int, run text, uid text, id text, kind text, name text, sender text, data int)
    LOOP
        n := s.i;
        IF s.run = ANY (busy) THEN
            verdict := 'busy';
        ELSE
            SELECT d.verdict, d.given, d.current, d.stands INTO verdict, given, current, stands
            FROM @deliver_1(now, s.run, s.uid, s.id, s.kind, s.name, s.sender, blobs[s.data]) AS d;
        END IF;
        IF verdict NOT IN ('done', 'again') THEN
            refusing := refusing || s.run;
        END IF;
        RETURN NEXT;
    END LOOP;
    DELETE FROM @tasks AS t WHERE t.run_id <> ALL (busy) AND t.place = ANY (ARRAY(
        SELECT decode(x.place, 'hex')
        FROM jsonb_to_recordset(finishes::jsonb) AS x (place text, keep boolean)
        WHERE NOT x.keep
    ));
    UPDATE @tasks AS t SET claimed_until = NULL WHERE t.run_id <> ALL (refusing) AND t.place = ANY (ARRAY(
        SELECT decode(x.place, 'hex')
        FROM jsonb_to_recordset(finishes::jsonb) AS x (place text, keep boolean)
        WHERE x.keep
    ));
END $$;

-- Removes a run and its tree, whoever holds it.
CREATE FUNCTION @delete_1(run text) RETURNS boolean
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
BEGIN
    PERFORM FROM @runs
    WHERE id = run OR (id > run || '~' AND id < run || chr(127))
    ORDER BY id FOR UPDATE;
    RETURN @forget_tree_1(run);
END $$;

-- Removes trees whose root ended before a time, oldest first, with nothing alive above or below.
CREATE FUNCTION @expire_1(before bigint, statuses text[], most int) RETURNS SETOF text
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    root text;
BEGIN
    FOR root IN
        SELECT r.id FROM @runs AS r
        WHERE r.ended_at IS NOT NULL AND r.ended_at < before AND strpos(r.id, '~') = 0
          AND (statuses IS NULL OR r.status = ANY (statuses))
          AND NOT EXISTS (
              SELECT FROM @runs AS p
              WHERE p.id = r.parent AND p.status NOT IN ('completed', 'failed', 'cancelled')
          )
          AND NOT EXISTS (
              SELECT FROM @runs AS c
              WHERE c.id > r.id || '~' AND c.id < r.id || chr(127)
                AND c.status NOT IN ('completed', 'failed', 'cancelled')
          )
        ORDER BY r.ended_at, r.id
        LIMIT most
    LOOP
        -- A child may have been replaced by a live one since; an ended run never comes back alive
        -- but by a replacement.
        IF @lock_tree_1(root) AND NOT EXISTS (
            SELECT FROM @runs AS r
            WHERE (r.id = root OR (r.id > root || '~' AND r.id < root || chr(127)))
              AND r.status NOT IN ('completed', 'failed', 'cancelled')
        ) THEN
            IF @forget_tree_1(root) THEN
                RETURN NEXT root;
            END IF;
        END IF;
    END LOOP;
END $$;
