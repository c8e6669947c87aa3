-- How many runs there are by workflow and status: the sum of what was added and taken away. Changes
-- are rows of their own and never touch one another, because a counter that all commits update
-- would make them wait for each other. Every 512th row that is added folds what has gathered.
CREATE TABLE @run_counts (
    key      bigint GENERATED ALWAYS AS IDENTITY,
    workflow text COLLATE "C" NOT NULL,
    status   text COLLATE "C" NOT NULL,
    number   bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Puts one row in place of many that nobody else is folding. Whoever counts sees all of it or nothing.
CREATE FUNCTION @fold_counts_1() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- In a stricter isolation, rows that somebody else has folded since would be an error.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RETURN;
    END IF;
    WITH gone AS (
        DELETE FROM @run_counts WHERE ctid = ANY (ARRAY(
            SELECT c.ctid FROM @run_counts AS c LIMIT 8192 FOR UPDATE SKIP LOCKED
        ))
        RETURNING workflow, status, number
    )
    INSERT INTO @run_counts (workflow, status, number)
    SELECT workflow, status, sum(number) FROM gone GROUP BY workflow, status
    HAVING sum(number) <> 0;
END $$;

CREATE FUNCTION @count_run_1() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    last bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO @run_counts (workflow, status, number) VALUES (NEW.workflow, NEW.status, 1)
        RETURNING key INTO last;
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO @run_counts (workflow, status, number) VALUES (OLD.workflow, OLD.status, -1);
        INSERT INTO @run_counts (workflow, status, number) VALUES (NEW.workflow, NEW.status, 1)
        RETURNING key INTO last;
    ELSE
        INSERT INTO @run_counts (workflow, status, number) VALUES (OLD.workflow, OLD.status, -1)
        RETURNING key INTO last;
    END IF;
    IF last % 512 < 2 THEN
        PERFORM @fold_counts_1();
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER #runs_begin AFTER INSERT ON @runs
    FOR EACH ROW EXECUTE FUNCTION @count_run_1();
CREATE TRIGGER #runs_turn AFTER UPDATE OF workflow, status ON @runs
    FOR EACH ROW WHEN (OLD.status <> NEW.status OR OLD.workflow <> NEW.workflow)
    EXECUTE FUNCTION @count_run_1();
CREATE TRIGGER #runs_vanish AFTER DELETE ON @runs
    FOR EACH ROW EXECUTE FUNCTION @count_run_1();

-- The triggers keep writers out until this is committed.
INSERT INTO @run_counts (workflow, status, number)
SELECT workflow, status, count(*) FROM @runs GROUP BY workflow, status;

-- Who is alive, by their own word. `data` is what the worker says of itself.
CREATE TABLE @workers (
    owner      text COLLATE "C" PRIMARY KEY,
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    until      bigint NOT NULL,
    data       bytea NOT NULL
);

-- As before, but for a run that has ended elsewhere: `ended_at` says when. NULL if there is a run of
-- that id; a transaction that is about to begin one is waited for.
CREATE OR REPLACE FUNCTION @begin_run_1(now bigint, b jsonb, blobs bytea[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    k bigint;
    born bigint := coalesce((b->>'created_at')::bigint, now);
    due bigint := (b->>'runnable_at')::bigint;
BEGIN
    INSERT INTO @runs (id, uid, workflow, parent, status, wait_kind, current_step, runnable_at,
                       created_at, updated_at, ended_at)
    VALUES (b->>'id', b->>'uid', b->>'workflow', b->>'parent', b->>'status', b->>'wait_kind',
            b->>'current_step', CASE WHEN due IS NOT NULL THEN greatest(due, now) END, born, now,
            (b->>'ended_at')::bigint)
    ON CONFLICT (id) DO NOTHING
    RETURNING key INTO k;
    IF k IS NULL THEN
        RETURN NULL;
    END IF;
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

CREATE OR REPLACE FUNCTION @end_run_1(now bigint, k bigint, run text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @runs SET runnable_at = NULL, owner = NULL, claimed_until = NULL,
                     ended_at = coalesce(ended_at, now)
    WHERE key = k;
    PERFORM @drop_work_1(ARRAY[k], ARRAY[run]);
END $$;

-- Count on from there, if the sequence is behind. One at a time: two who set it at once could set it
-- back.
CREATE FUNCTION @skip_tokens_1(above bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('skip', '@tokens'::regclass::oid::bigint));
    IF (SELECT t.last_value FROM @tokens AS t) < above THEN
        PERFORM setval('@tokens', above);
    END IF;
END $$;
