-- Records that `k` tasks of a key start. Times never decrease, whatever the clock does.
CREATE OR REPLACE FUNCTION @record_starts(now bigint, s text, l text, k int) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    last record;
    last_m bigint;
BEGIN
    SELECT b.at, b.n INTO last FROM @task_starts AS b WHERE b.scope = s
    ORDER BY b.at DESC, b.n DESC LIMIT 1;
    SELECT b.m INTO last_m FROM @task_starts AS b
    WHERE b.fair_key <> '' AND b.scope = s AND b.fair_key = l
    ORDER BY b.at DESC, b.m DESC LIMIT 1;
    INSERT INTO @task_starts (scope, fair_key, at, n, m)
    SELECT s, l, greatest(now, last.at), coalesce(last.n, 0) + i, coalesce(last_m, 0) + i
    FROM generate_series(1, k) AS i;
END $$;
