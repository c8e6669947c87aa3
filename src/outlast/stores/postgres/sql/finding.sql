-- Which runs, in order.
--   $1 the way   $2 workflow   $3 statuses   $4 parent   $5 marks of attributes   $6, $7 the cursor   $8 limit

-- name: find
SELECT * FROM @find_1($1, $2, $3, $4, $5, $6, $7, $8);
