-- Items that are sent to a run.

-- name: send
SELECT * FROM @send_items($1, $2, $3, $4, $5);

-- name: load_inboxes
SELECT w.position::int, i.*
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS w (id, after, most, position)
CROSS JOIN LATERAL (
    SELECT i.number, i.id, i.kind, i.name, i.sender, i.sent_at, i.data
    FROM @inbox AS i
    WHERE i.run_key = (SELECT key FROM @runs WHERE id = w.id) AND i.number > w.after
    ORDER BY i.number
    LIMIT w.most
) AS i;
