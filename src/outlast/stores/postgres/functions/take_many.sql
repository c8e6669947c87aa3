-- Hands out up to `room` tasks of some queues.
CREATE OR REPLACE FUNCTION @take_many(
    at bigint, shift bigint, queues text[], a_owner text, visibility bigint, most bigint, room int
) RETURNS SETOF @tasks
LANGUAGE plpgsql
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET enable_sort = off SET lock_timeout = '2s'
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    now bigint;
    taken bigint[] := '{}';
    fair text[];           -- scopes with a policy or keys, …
    promising text[];      -- … that may have a task
    plain text[];
    s text;
    x record;
BEGIN
    -- No policy is written between this check and the end of the take.
    IF cardinality(queues) = 1 THEN
        fair := ARRAY[split_part(queues[1], '/', 1)];
        PERFORM pg_advisory_xact_lock_shared(
            hashtextextended(fair[1], '@policies'::regclass::oid::bigint)
        );
        IF NOT @has_policy_or_keys(fair[1]) THEN
            fair := '{}';
        END IF;
    ELSE
        fair := ARRAY(
            SELECT DISTINCT split_part(u.queue, '/', 1) COLLATE "C" FROM unnest(queues) AS u (queue)
            ORDER BY 1
        );
        FOREACH s IN ARRAY fair LOOP
            PERFORM pg_advisory_xact_lock_shared(
                hashtextextended(s, '@policies'::regclass::oid::bigint)
            );
        END LOOP;
        fair := ARRAY(SELECT u.scope FROM unnest(fair) AS u (scope) WHERE @has_policy_or_keys(u.scope));
    END IF;
    now := @now(at, shift);
    IF fair = '{}' THEN
        taken := @take_plain(now, queues, a_owner, visibility, most, room);
    ELSE
        promising := ARRAY(
            SELECT d.scope FROM (
                SELECT split_part(u.queue, '/', 1) COLLATE "C" AS scope, array_agg(u.queue) AS own
                FROM unnest(queues) AS u (queue) GROUP BY 1
            ) AS d
            WHERE d.scope = ANY (fair) AND @may_have_work(now, d.scope, d.own)
        );
        -- First all locks, in order, then the time: a start is not dated back to before the wait.
        INSERT INTO @policies (scope)
        SELECT u.scope FROM unnest(promising) AS u (scope)
        WHERE NOT EXISTS (SELECT FROM @policies AS f WHERE f.scope = u.scope)
        ORDER BY 1
        ON CONFLICT DO NOTHING;
        PERFORM FROM @policies AS f WHERE f.scope = ANY (promising) ORDER BY f.scope FOR UPDATE;
        now := @now(at, shift);
        -- Rotate the first scope, so that no scope is always served first.
        FOR x IN
            SELECT w.scope, w.own FROM (
                SELECT d.scope, d.own, row_number() OVER (ORDER BY d.first) - 1 AS position,
                       count(*) OVER () AS number
                FROM (
                    SELECT split_part(u.queue, '/', 1) AS scope, array_agg(u.queue) AS own,
                           min(u.n) AS first
                    FROM unnest(queues) WITH ORDINALITY AS u (queue, n)
                    WHERE split_part(u.queue, '/', 1) = ANY (promising)
                    GROUP BY 1
                ) AS d
            ) AS w ORDER BY (w.position - now % w.number + w.number) % w.number
        LOOP
            EXIT WHEN cardinality(taken) >= room;
            taken := taken || @take_fair(
                now, x.scope, x.own, a_owner, visibility, most, room - cardinality(taken)
            );
        END LOOP;
        plain := ARRAY(
            SELECT u.queue FROM unnest(queues) AS u (queue)
            WHERE NOT split_part(u.queue, '/', 1) = ANY (fair)
        );
        IF plain <> '{}' AND cardinality(taken) < room THEN
            taken := taken || @take_plain(
                now, plain, a_owner, visibility, most, room - cardinality(taken)
            );
        END IF;
    END IF;
    RETURN QUERY
        SELECT t.* FROM unnest(taken) WITH ORDINALITY AS u (key, n) JOIN @tasks AS t ON t.key = u.key
        ORDER BY u.n;
END $$;
