-- Whose process is alive.

-- name: hold_owner
SELECT @hold_owner_1($1);

-- name: drop_owners
DELETE FROM @owners WHERE owner = ANY ($1::text[]);

-- name: owner_gone
SELECT @owner_gone_1($1);

-- name: end_leases
SELECT * FROM @end_leases_1($1, $2);
