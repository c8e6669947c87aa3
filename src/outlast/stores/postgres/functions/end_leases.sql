-- Ends the leases of owners that have been unlocked for `grace`, in which sessions that were cut off
-- reconnect. One row per unlocked owner; `gone` if its leases are ended now. Its claims are as after a
-- lease expiry: another process may take them over, and until then they stay valid.
CREATE OR REPLACE FUNCTION @end_leases(grace interval, settle interval) RETURNS TABLE (name text, gone boolean)
LANGUAGE plpgsql
SET jit = off AS $$
DECLARE
    now bigint := @now(NULL, 0);
    o record;
BEGIN
    DELETE FROM @owners AS w WHERE w.gone_at < clock_timestamp() - interval '1 hour';
    FOR o IN SELECT * FROM @owners AS w WHERE w.gone_at IS NULL ORDER BY w.owner LOOP
        CONTINUE WHEN NOT @is_owner_unlocked(o.owner);
        name := o.owner;
        gone := false;
        IF o.missing_at IS NULL THEN
            UPDATE @owners AS w SET missing_at = clock_timestamp() WHERE w.owner = o.owner;
        -- After a server restart live owners reconnect one by one: none is judged before `settle`.
        ELSIF o.missing_at <= clock_timestamp() - grace
              AND pg_postmaster_start_time() <= clock_timestamp() - settle THEN
            UPDATE @runs AS r SET claimed_until = now WHERE r.key = ANY (ARRAY(
                SELECT h.key FROM @runs AS h WHERE h.owner = o.owner AND h.claimed_until > now
                FOR UPDATE SKIP LOCKED
            ));
            UPDATE @tasks AS t SET claimed_until = now WHERE t.key = ANY (ARRAY(
                SELECT h.key FROM @tasks AS h WHERE h.owner = o.owner AND h.claimed_until > now
                FOR UPDATE SKIP LOCKED
            ));
            -- A locked row, most likely of the owner's last commit, is ended in the next round.
            gone := NOT EXISTS (
                SELECT FROM @runs AS h WHERE h.owner = o.owner AND h.claimed_until > now
            ) AND NOT EXISTS (
                SELECT FROM @tasks AS h WHERE h.owner = o.owner AND h.claimed_until > now
            );
            IF gone THEN
                UPDATE @owners AS w SET gone_at = clock_timestamp() WHERE w.owner = o.owner;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
