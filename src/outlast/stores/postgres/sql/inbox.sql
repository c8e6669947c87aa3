-- What others send to a run.

-- name: send
SELECT * FROM @send_1($1, $2, $3, $4, $5);

-- name: load_inbox
SELECT number, id, kind, name, sender, sent_at, data
FROM @inbox
WHERE run_key = (SELECT key FROM @runs WHERE id = $1) AND number > $2
ORDER BY number
LIMIT $3;
