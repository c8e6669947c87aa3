-- Queue policy: the rules of queues, and how queues stand.

-- name: write_policy
SELECT @write_policy_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                     $16, $17, $18, $19);

-- name: load_policies
SELECT rules FROM @policies WHERE rules IS NOT NULL ORDER BY scope;

-- name: load_policy_changes
SELECT at, by, rules FROM @policy_changes WHERE scope = $1 ORDER BY key DESC LIMIT $2;

-- name: queue_stats
SELECT * FROM @queue_stats_1($1, $2, $3, $4);

-- name: key_stats
SELECT * FROM @key_stats_1($1, $2, $3, $4, $5);

-- name: next_ready_at
SELECT @next_ready_at_1($1, $2, $3);
