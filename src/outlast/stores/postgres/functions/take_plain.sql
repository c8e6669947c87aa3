-- Takes tasks of queues without policy and keys: smallest priority first, then longest ready.
CREATE OR REPLACE FUNCTION @take_plain(
    now bigint, own text[], a_owner text, visibility bigint, most bigint, room int
) RETURNS bigint[]
LANGUAGE plpgsql AS $$
DECLARE
    taken bigint[] := '{}';
    ks bigint[];
    q text;
    leased record;
BEGIN
    LOOP
        ks := '{}';
        FOREACH q IN ARRAY own LOOP
            ks := ks || @lock_ready_tasks(now, q, '', room - cardinality(taken), false);
        END LOOP;
        EXIT WHEN ks = '{}';
        SELECT * INTO leased FROM @lease_tasks(
            now, ks, room - cardinality(taken), NULL, a_owner, visibility, most
        );
        taken := taken || leased.taken;
        EXIT WHEN leased.buried = 0;
    END LOOP;
    RETURN taken;
END $$;
