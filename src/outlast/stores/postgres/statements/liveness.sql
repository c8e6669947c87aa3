-- Owners whose process is alive.

-- name: register_owner
SELECT @register_owner($1);

-- name: deregister_owners
DELETE FROM @owners WHERE owner = ANY ($1::text[]);

-- name: owner_gone
SELECT @owner_gone($1);

-- name: end_leases
SELECT * FROM @end_leases($1, $2);
