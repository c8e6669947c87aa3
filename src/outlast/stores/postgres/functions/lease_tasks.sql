-- Leases the `n` most urgent of locked tasks. Tasks without an attempt left are buried.
CREATE OR REPLACE FUNCTION @lease_tasks(
    now bigint, ks bigint[], n int, ages double precision, a_owner text, visibility bigint,
    most bigint, OUT taken bigint[], OUT buried int
)
LANGUAGE plpgsql AS $$
DECLARE
    d record;
BEGIN
    SELECT coalesce(array_agg(c.key), '{}'), count(*) FILTER (WHERE c.attempt >= most)
    INTO taken, buried FROM (
        SELECT t.key, t.attempt FROM @tasks AS t
        WHERE t.key = ANY (ks)
        ORDER BY t.priority * ages * 1000000 + t.ready_at, -- NULL without ageing
                 CASE WHEN ages IS NULL THEN t.priority END, t.ready_at, t.key
        LIMIT n
    ) AS c;
    IF buried > 0 THEN
        FOR d IN
            SELECT t.key, t.attempt FROM @tasks AS t
            WHERE t.key = ANY (taken) AND t.attempt >= most
        LOOP
            taken := array_remove(taken, d.key);
            PERFORM @bury_task(now, d.key, 'no success in ' || d.attempt || ' attempts');
        END LOOP;
    END IF;
    UPDATE @tasks AS t
    SET owner = a_owner, token = nextval('@tokens'), claimed_until = now + visibility,
        attempt = t.attempt + 1
    WHERE t.key = ANY (taken);
END $$;
