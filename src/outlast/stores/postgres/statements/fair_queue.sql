-- Queue policies, and the state of queues.

-- name: write_policy
SELECT @write_policy($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                     $16, $17, $18, $19);

-- name: load_policies
SELECT policy FROM @policies WHERE policy IS NOT NULL ORDER BY scope;

-- name: load_policy_changes
SELECT at, by, policy FROM @policy_changes WHERE scope = $1 ORDER BY key DESC LIMIT $2;

-- name: queue_stats
SELECT * FROM @queue_stats($1, $2, $3, $4);

-- name: key_stats
SELECT * FROM @key_stats($1, $2, $3, $4, $5);

-- name: next_ready_at
SELECT @next_ready_at($1, $2, $3);
