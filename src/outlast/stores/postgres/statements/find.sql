-- A page of runs in order.
--   $1 search   $2 workflow   $3 statuses   $4 parent   $5 hashes of attributes   $6, $7 cursor   $8 limit

-- name: find
SELECT * FROM @find($1, $2, $3, $4, $5, $6, $7, $8);

-- name: count_runs
SELECT workflow, status, sum(number)::bigint FROM @run_counts
GROUP BY workflow, status HAVING sum(number) > 0;
