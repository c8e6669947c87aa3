-- Takes tasks of one scope, whose policy row is locked: keys in the order of their pass, within the policy.
--
-- The scope is the queue that people name: `gpu` for the tasks of `gpu/render`. The rules are those of
-- `outlast.model.queue_policy` (stride scheduling), whose `allocate` is a sort here: a key's turns are
-- max(pass, global_pass) and then one stride after the other; the smallest are served.
--
--   enqueue, commit, ack ──▶ tasks ──trigger──▶ fair_key_wakeups     writers never wait
--   take ──lock──▶ policies ──▶ fair_keys ──▶ tasks           one transaction at a time per scope
--
-- Writers of tasks only append wake-ups. A take locks the policy row, applies the wake-ups and then reads
-- the keys. A task that is committed later leaves its wake-up for the next take. Only the holder of the
-- lock changes the keys of a scope, so that limits are counted on rows that do not change.
CREATE OR REPLACE FUNCTION @take_fair(
    now bigint, s text, own text[], a_owner text, visibility bigint, most bigint, room int
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    f @policies;
    taken bigint[] := '{}';
    more boolean;          -- wake-ups are left to apply
    allowed int;           -- how many, by room and by the policy of the queue
    ls text[];             -- keys that can be served, …
    passes bigint[];
    strides bigint[];
    rooms bigint[];        -- … capacity of the key, …
    ready int[];           -- … how many ready tasks, if …
    full_ boolean[];       -- … that count is complete
    parts int[];           -- the first part of a key
    p_queue text[];        -- a part: the tasks of a key in one queue, …
    p_ready int[];
    p_counted int[];       -- … counted so far, …
    p_next int[];          -- … and the next part of the same key, or 0
    given_to int[];
    given int[];
    reached bigint;
    ks bigint[];
    all_ks bigint[];       -- of keys that get all their ready tasks, to be leased together
    served int;
    buried int;
    again boolean;
    few int;
    found_ int;
    key_room bigint;
    q text;
    x record;
    i int;
    j int;
    n int;
    p int;
BEGIN
    SELECT * INTO f FROM @policies AS t WHERE t.scope = s;
    LOOP
        more := @apply_wakeups(s, f.global_pass);
        UPDATE @fair_keys AS l SET wake_at = NULL WHERE l.queue = ANY (own) AND l.wake_at <= now;
        allowed := least(room - cardinality(taken), @queue_capacity(now, f));
        EXIT WHEN allowed <= 0;

        -- read at most `allowed` keys of each queue
        ls := '{}'; passes := '{}'; strides := '{}'; rooms := '{}'; ready := '{}'; full_ := '{}';
        parts := '{}'; p_queue := '{}'; p_ready := '{}'; p_counted := '{}'; p_next := '{}';
        FOREACH q IN ARRAY own LOOP
            -- Among many keys each gets few.
            SELECT least(allowed, 1 + allowed / greatest(count(*), 1)) INTO few FROM (
                SELECT FROM @fair_keys AS l
                WHERE l.queue = q AND l.wake_at IS NULL AND l.fair_key <> '' LIMIT allowed
            ) AS a;
            found_ := -1;
            FOR x IN
                SELECT '' AS fair_key, 0::bigint AS pass
                UNION ALL
                (SELECT l.fair_key, l.pass FROM @fair_keys AS l
                 WHERE l.queue = q AND l.wake_at IS NULL AND l.fair_key <> ''
                 ORDER BY l.pass, l.fair_key)
            LOOP
                EXIT WHEN found_ >= allowed;
                IF x.fair_key = '' THEN
                    n := @count_ready_tasks(now, q, '', allowed);
                    found_ := 0;
                    CONTINUE WHEN n = 0;
                ELSE
                    n := @count_ready_tasks(now, q, x.fair_key, few);
                END IF;
                i := array_position(ls, x.fair_key);
                key_room := CASE WHEN i IS NOT NULL THEN rooms[i] WHEN x.fair_key = '' THEN allowed
                                 WHEN n > 0 THEN @key_capacity(now, f, x.fair_key) END;
                IF n = 0 OR key_room <= 0 THEN
                    PERFORM @put_key_to_sleep(now, f, q, x.fair_key, n);
                    CONTINUE;
                END IF;
                found_ := found_ + (x.fair_key <> '')::int;
                IF i IS NULL THEN
                    i := cardinality(ls) + 1;
                    ls[i] := x.fair_key; passes[i] := x.pass; rooms[i] := key_room; ready[i] := 0;
                    full_[i] := true; parts[i] := 0;
                END IF;
                p := cardinality(p_queue) + 1;
                p_queue[p] := q; p_ready[p] := n; p_next[p] := parts[i];
                p_counted[p] := CASE WHEN x.fair_key = '' THEN allowed ELSE few END;
                parts[i] := p;
                ready[i] := ready[i] + n;
                full_[i] := full_[i] AND n < p_counted[p];
            END LOOP;
        END LOOP;
        EXIT WHEN ls = '{}' AND NOT more;
        i := array_position(ls, '');
        IF i IS NOT NULL THEN
            INSERT INTO @fair_keys (queue, fair_key, scope, pass) VALUES (s, '', s, 0)
            ON CONFLICT DO NOTHING;
            passes[i] := (SELECT l.pass FROM @fair_keys AS l WHERE l.queue = s AND l.fair_key = '');
        END IF;
        IF f.weighted THEN
            strides := ARRAY(
                SELECT coalesce(w.stride, 1000000)
                FROM unnest(ls) WITH ORDINALITY AS u (fair_key, i)
                LEFT JOIN @fair_weights AS w ON w.scope = s AND w.fair_key = u.fair_key
                ORDER BY u.i
            );
        END IF;

        -- allocate turns
        LOOP
            SELECT array_agg(g.i), array_agg(g.n), max(g.t) INTO given_to, given, reached FROM (
                SELECT e.i, count(*)::int AS n, max(e.t) AS t FROM (
                    SELECT u.i, b.t FROM unnest(ls, passes, strides, rooms, ready)
                        WITH ORDINALITY AS u (fair_key, pass, stride, room, ready, i)
                    CROSS JOIN LATERAL generate_series(0, least(u.room, u.ready, allowed) - 1) AS k
                    CROSS JOIN LATERAL (
                        SELECT greatest(u.pass, f.global_pass) + k * coalesce(u.stride, 1000000) AS t
                    ) AS b
                    ORDER BY b.t, CASE k WHEN 0 THEN u.pass ELSE b.t END, u.fair_key COLLATE "C"
                    LIMIT allowed
                ) AS e GROUP BY e.i
            ) AS g;
            -- Of most keys only a few tasks were counted: a key that got all of those may get more.
            again := false;
            FOR j IN 1 .. coalesce(cardinality(given), 0) LOOP
                i := given_to[j];
                CONTINUE WHEN full_[i] OR given[j] < ready[i] OR ready[i] >= allowed;
                again := true;
                full_[i] := true;
                ready[i] := 0;
                p := parts[i];
                WHILE p > 0 LOOP
                    p_counted[p] := least(4 * p_counted[p], allowed);
                    p_ready[p] := @count_ready_tasks(now, p_queue[p], ls[i], p_counted[p]);
                    ready[i] := ready[i] + p_ready[p];
                    full_[i] := full_[i] AND p_ready[p] < p_counted[p];
                    p := p_next[p];
                END LOOP;
            END LOOP;
            EXIT WHEN NOT again;
        END LOOP;

        -- hand out
        served := 0;
        buried := 0;
        all_ks := '{}';
        FOR j IN 1 .. coalesce(cardinality(given), 0) LOOP
            i := given_to[j];
            ks := '{}';
            p := parts[i];
            WHILE p > 0 LOOP
                ks := ks || @lock_ready_tasks(now, p_queue[p], ls[i], given[j], f.ageing IS NOT NULL);
                p := p_next[p];
            END LOOP;
            -- Fewer than given: another transaction has locked the rest, most likely to finish them.
            n := least(cardinality(ks), given[j]);
            CONTINUE WHEN n = 0;
            served := served + n;
            IF cardinality(ks) = n THEN
                all_ks := all_ks || ks;
            ELSE
                SELECT * INTO x FROM @lease_tasks(
                    now, ks, n, f.ageing, a_owner, visibility, most
                );
                taken := taken || x.taken;
                buried := buried + x.buried;
            END IF;
            -- Without policy and keys no pass is kept.
            CONTINUE WHEN f.policy IS NULL AND ls = '{""}';
            UPDATE @fair_keys AS l
            SET pass = greatest(passes[i], f.global_pass) + n * coalesce(strides[i], 1000000)
            WHERE l.scope = s AND l.fair_key = ls[i];
            IF f.rate_per IS NOT NULL OR f.key_rate_per IS NOT NULL THEN
                PERFORM @record_starts(now, s, ls[i], n);
            END IF;
        END LOOP;
        IF all_ks <> '{}' THEN
            SELECT * INTO x FROM @lease_tasks(
                now, all_ks, cardinality(all_ks), f.ageing, a_owner, visibility, most
            );
            taken := taken || x.taken;
            buried := buried + x.buried;
        END IF;
        IF served > 0 THEN
            IF f.policy IS NOT NULL OR ls <> '{""}' THEN
                f.global_pass := reached;
            END IF;
            -- Always: a stricter isolation then fails instead of counting on an older snapshot.
            UPDATE @policies AS t SET global_pass = f.global_pass WHERE t.scope = s;
            DELETE FROM @fair_keys AS l WHERE l.ctid = ANY (ARRAY(
                SELECT o.ctid FROM @fair_keys AS o
                WHERE o.scope = s AND o.wake_at = 9223372036854775807 AND o.pass <= f.global_pass
                LIMIT served + 10
            ));
            IF f.rate_per IS NOT NULL OR f.key_rate_per IS NOT NULL THEN
                DELETE FROM @task_starts AS b WHERE b.ctid = ANY (ARRAY(
                    SELECT o.ctid FROM @task_starts AS o
                    WHERE o.scope = s AND o.at <= now - greatest(f.rate_per, f.key_rate_per)
                    ORDER BY o.at LIMIT served + 100
                ));
            END IF;
        END IF;
        EXIT WHEN buried = 0 AND NOT more;
    END LOOP;
    RETURN taken;
END $$;
