-- Tasks: rows that are leased, returned, buried. The store and the queue work on the same ones.

-- Adds tasks that are not handed out before `earliest`; how many were new.
CREATE FUNCTION @insert_tasks_1(
    now bigint, earliest bigint, tasks jsonb, life text, blobs bytea[]
) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    added bigint;
BEGIN
    INSERT INTO @tasks (place, queue, run_id, id, uid, kind, name, step, definition, priority,
                        run_at, attempt, metadata, enqueued_at, input, ready_at)
    SELECT decode(x.place, 'hex'), x.queue, x.run_id, x.id, coalesce(life, x.uid), x.kind, x.name,
           x.step, x.definition, x.priority, x.run_at, x.attempt, x.metadata, now, blobs[x.input],
           greatest(x.run_at, earliest)
    FROM jsonb_array_elements(tasks) WITH ORDINALITY AS e (task, position),
         jsonb_to_record(e.task)
             AS x (place text, queue text, run_id text, id text, uid text, kind text, name text,
                   step text, definition text, priority bigint, run_at bigint, attempt bigint,
                   metadata text, input int)
    ORDER BY e.position
    ON CONFLICT (place) DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    RETURN added;
END $$;

CREATE FUNCTION @enqueue_1(at bigint, shift bigint, delay bigint, tasks text, blobs bytea[])
RETURNS bigint
LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
DECLARE
    now bigint := @now_1(at, shift);
BEGIN
    RETURN @insert_tasks_1(now, now + delay, tasks::jsonb, NULL, blobs);
END $$;

-- Moves a task among the dead. One that dies a second time keeps its place in their order.
CREATE FUNCTION @bury_1(now bigint, k bigint, why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO @dead_tasks (place, queue, run_id, id, uid, kind, name, step, definition, priority,
                             run_at, attempt, metadata, enqueued_at, input, reason, died_at)
    SELECT t.place, t.queue, t.run_id, t.id, t.uid, t.kind, t.name, t.step, t.definition,
           t.priority, t.run_at, t.attempt, t.metadata, t.enqueued_at, t.input, why, now
    FROM @tasks AS t WHERE t.key = k
    ON CONFLICT (place) DO UPDATE SET
        uid = excluded.uid, kind = excluded.kind, name = excluded.name, step = excluded.step,
        definition = excluded.definition, priority = excluded.priority, run_at = excluded.run_at,
        attempt = excluded.attempt, metadata = excluded.metadata,
        enqueued_at = excluded.enqueued_at, input = excluded.input, reason = excluded.reason,
        died_at = excluded.died_at;
    DELETE FROM @tasks AS t WHERE t.key = k;
END $$;

-- Hands out up to `room` ready tasks of some queues, and at least one if there is any: smallest
-- priority first, then ready longest. Of each queue those that come first are locked, past what
-- others have locked, and of all these those that come first are taken: the rest is free again when
-- the call ends. One that has had `most` attempts is buried. A search goes from level to level of
-- priority, so that it never walks past what is delayed, however much that is. (ORDER BY … LIMIT 1,
-- because min() over what PostgreSQL takes for a small table reads all of it.)
CREATE FUNCTION @take_1(
    at bigint, shift bigint, queues text[], a_owner text, visibility bigint, most bigint, room int
) RETURNS SETOF @tasks
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET lock_timeout = '2s'
SET enable_sort = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    q text;
    level bigint;
    ks bigint[];
    more bigint[];
    taken bigint[];
    spent record;
    free int;
BEGIN
    LOOP
        ks := '{}';
        FOREACH q IN ARRAY queues LOOP
            SELECT ks || coalesce(array_agg(e.key), '{}') INTO ks FROM (
                SELECT t.key FROM @tasks AS t
                WHERE t.owner IS NOT NULL AND t.queue = q AND t.claimed_until <= now
                  AND t.ready_at <= now
                ORDER BY t.priority, t.ready_at, t.key
                LIMIT room FOR UPDATE SKIP LOCKED
            ) AS e;
            free := 0;
            SELECT t.priority INTO level FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = q
            ORDER BY t.priority LIMIT 1;
            WHILE level IS NOT NULL AND free < room LOOP
                SELECT coalesce(array_agg(f.key), '{}') INTO more FROM (
                    SELECT t.key FROM @tasks AS t
                    WHERE t.owner IS NULL AND t.queue = q AND t.priority = level
                      AND t.ready_at <= now
                    ORDER BY t.ready_at, t.key
                    LIMIT room - free FOR UPDATE SKIP LOCKED
                ) AS f;
                ks := ks || more;
                free := free + cardinality(more);
                SELECT t.priority INTO level FROM @tasks AS t
                WHERE t.owner IS NULL AND t.queue = q AND t.priority > level
                ORDER BY t.priority LIMIT 1;
            END LOOP;
        END LOOP;
        IF cardinality(ks) = 0 THEN
            RETURN;
        END IF;
        taken := '{}';
        FOR spent IN
            SELECT t.key, t.attempt FROM @tasks AS t WHERE t.key = ANY (ks)
            ORDER BY t.priority, t.ready_at, t.key LIMIT room
        LOOP
            IF spent.attempt < most THEN
                taken := taken || spent.key;
            ELSE
                PERFORM @bury_1(now, spent.key, 'no success in ' || spent.attempt || ' attempts');
            END IF;
        END LOOP;
        IF cardinality(taken) > 0 THEN
            RETURN QUERY
                UPDATE @tasks AS t
                SET owner = a_owner, token = nextval('@tokens'), claimed_until = now + visibility,
                    attempt = t.attempt + 1
                WHERE t.key = ANY (taken)
                RETURNING t.*;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Claims one task of a run, if it is to be had. Without `ttl` for good.
CREATE FUNCTION @claim_task_1(
    at bigint, shift bigint, a_run text, a_id text, a_owner text, ttl bigint
) RETURNS SETOF @tasks
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' AS $$
DECLARE
    now bigint := @now_1(at, shift);
BEGIN
    RETURN QUERY
        WITH one AS (
            SELECT t.key FROM @tasks AS t
            WHERE t.run_id = a_run AND t.run_id <> '' AND t.id = a_id AND t.ready_at <= now
              AND (t.owner IS NULL OR t.claimed_until <= now)
            ORDER BY t.key
            LIMIT 1 FOR UPDATE SKIP LOCKED
        )
        UPDATE @tasks AS t
        SET owner = a_owner, token = nextval('@tokens'), claimed_until = now + ttl
        FROM one WHERE t.key = one.key
        RETURNING t.*;
END $$;

-- What a claim allows: 'ack' removes the task, 'extend' sets its lease to `span` from now, 'nack'
-- returns it after `span`, 'bury' puts it among the dead, 'drop' removes it. Says 'done', 'fenced'
-- with the token that owns it now, or 'not found'.
CREATE FUNCTION @settle_1(
    at bigint, shift bigint, verb text, a_place bytea, a_token bigint, span bigint, most bigint,
    why text, OUT verdict text, OUT current bigint, OUT until bigint
)
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    t record;
BEGIN
    SELECT k.key, k.owner, k.token, k.attempt, k.queue, k.claimed_until INTO t
    FROM @tasks AS k WHERE k.place = a_place
    FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'not found';
        RETURN;
    END IF;
    IF t.owner IS NULL OR t.token <> a_token
       OR (verb = 'extend' AND @gave_place_1(t.queue, t.claimed_until, at, shift)) THEN
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
        PERFORM @bury_1(now, t.key, why);
    END IF;
END $$;

-- Makes dead tasks ready again (all of a queue, or those named); how many.
CREATE FUNCTION @redrive_1(at bigint, shift bigint, a_queue text, a_ids text[]) RETURNS bigint
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET lock_timeout = '2s' SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    d record;
    moved bigint := 0;
BEGIN
    FOR d IN
        SELECT t.key FROM @dead_tasks AS t
        WHERE t.queue = a_queue AND (a_ids IS NULL OR t.id = ANY (a_ids))
        ORDER BY t.key FOR UPDATE
    LOOP
        INSERT INTO @tasks (place, queue, run_id, id, uid, kind, name, step, definition, priority,
                            run_at, attempt, metadata, enqueued_at, input, ready_at)
        SELECT t.place, t.queue, t.run_id, t.id, t.uid, t.kind, t.name, t.step, t.definition,
               t.priority, t.run_at, 0, t.metadata, t.enqueued_at, t.input, now
        FROM @dead_tasks AS t WHERE t.key = d.key
        ON CONFLICT (place) DO NOTHING;
        DELETE FROM @dead_tasks AS t WHERE t.key = d.key;
        moved := moved + 1;
    END LOOP;
    RETURN moved;
END $$;

-- Tasks that are due and unclaimed, in the order in which they should be done: of one queue, or of
-- all. Queues and levels of priority are found by skipping, two seeks each.
CREATE FUNCTION @available_tasks_1(at bigint, shift bigint, a_queue text, most int)
RETURNS SETOF @tasks
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off AS $$
DECLARE
    now bigint := @now_1(at, shift);
    q text := a_queue;
    level bigint;
    ks bigint[] := '{}';
    more bigint[];
    free int;
BEGIN
    IF a_queue IS NULL THEN
        SELECT least(
            (SELECT t.queue FROM @tasks AS t WHERE t.owner IS NULL ORDER BY 1 LIMIT 1),
            (SELECT t.queue FROM @tasks AS t WHERE t.owner IS NOT NULL ORDER BY 1 LIMIT 1)
        ) INTO q;
    END IF;
    WHILE q IS NOT NULL LOOP
        SELECT ks || coalesce(array_agg(e.key), '{}') INTO ks FROM (
            SELECT t.key FROM @tasks AS t
            WHERE t.owner IS NOT NULL AND t.queue = q AND t.claimed_until <= now
              AND t.ready_at <= now
            ORDER BY t.priority, t.ready_at, t.key
            LIMIT most
        ) AS e;
        free := 0;
        SELECT t.priority INTO level FROM @tasks AS t
        WHERE t.owner IS NULL AND t.queue = q
        ORDER BY t.priority LIMIT 1;
        WHILE level IS NOT NULL AND free < most LOOP
            SELECT coalesce(array_agg(f.key), '{}') INTO more FROM (
                SELECT t.key FROM @tasks AS t
                WHERE t.owner IS NULL AND t.queue = q AND t.priority = level AND t.ready_at <= now
                ORDER BY t.ready_at, t.key
                LIMIT most
            ) AS f;
            ks := ks || more;
            free := free + cardinality(more);
            SELECT t.priority INTO level FROM @tasks AS t
            WHERE t.owner IS NULL AND t.queue = q AND t.priority > level
            ORDER BY t.priority LIMIT 1;
        END LOOP;
        EXIT WHEN a_queue IS NOT NULL;
        SELECT least(
            (SELECT t.queue FROM @tasks AS t WHERE t.owner IS NULL AND t.queue > q
             ORDER BY 1 LIMIT 1),
            (SELECT t.queue FROM @tasks AS t WHERE t.owner IS NOT NULL AND t.queue > q
             ORDER BY 1 LIMIT 1)
        ) INTO q;
    END LOOP;
    RETURN QUERY
        SELECT t.* FROM @tasks AS t WHERE t.key = ANY (ks)
        ORDER BY t.priority, t.ready_at, t.key
        LIMIT most;
END $$;
