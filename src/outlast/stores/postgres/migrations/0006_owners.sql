-- Owners whose death can be told. A process holds a shared advisory lock for each of its owners, on
-- the session that also listens and on each one that claims or renews; a lock ends with its session, and
-- all sessions with the process. One session that is cut off is not the end of its process.
-- Only owners that stand here are judged: who never had a lock has not lost it.
CREATE TABLE @owners (
    owner      text COLLATE "C" PRIMARY KEY,
    missing_at timestamptz,    -- when somebody first found that nobody holds the lock
    gone_at    timestamptz     -- when its leases were ended
);

CREATE FUNCTION @owner_lock_1(a_owner text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT hashtextextended(a_owner, '@owners'::regclass::oid::bigint)
$$;

-- Says that an owner lives for as long as this session does. The lock comes first: whoever finds
-- the row and no lock may believe it.
CREATE FUNCTION @hold_owner_1(a_owner text) RETURNS void
LANGUAGE plpgsql
SET lock_timeout = '2s' AS $$
BEGIN
    PERFORM pg_advisory_lock_shared(@owner_lock_1(a_owner));
    INSERT INTO @owners (owner) VALUES (a_owner)
    ON CONFLICT (owner) DO UPDATE SET missing_at = NULL, gone_at = NULL;
END $$;

-- Says on this session, too, that owners live, until it ends. A setting of the session remembers which.
CREATE FUNCTION @live_1(a_owners text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    o text;
    known text := coalesce(current_setting('outlast.live', true), '');
BEGIN
    IF a_owners IS NOT NULL THEN
        FOREACH o IN ARRAY a_owners LOOP
            IF strpos(known, quote_ident(o) || ' ') = 0
               AND pg_try_advisory_lock_shared(@owner_lock_1(o)) THEN
                known := known || quote_ident(o) || ' ';
                PERFORM set_config('outlast.live', known, false);
            END IF;
        END LOOP;
    END IF;
    RETURN true;
END $$;

-- Whether no session says that an owner lives. This one's own lock would not be in its way.
CREATE FUNCTION @is_silent_1(a_owner text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN strpos(coalesce(current_setting('outlast.live', true), ''), quote_ident(a_owner) || ' ') = 0
        AND pg_try_advisory_xact_lock(@owner_lock_1(a_owner));
END $$;

-- Whether an owner has died: it stands here, and nobody holds its lock.
CREATE FUNCTION @owner_gone_1(a_owner text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RETURN EXISTS (SELECT FROM @owners AS o WHERE o.owner = a_owner)
        AND @is_silent_1(a_owner);
END $$;

-- Ends the leases of owners that have been missing for `grace`, which is there for sessions that are
-- cut off and come back. A row for each owner that is missing; `gone` if its leases are ended now.
-- Its claims are as after an expired lease: others may take them, and until then they are its own.
CREATE FUNCTION @end_leases_1(grace interval, settle interval) RETURNS TABLE (name text, gone boolean)
LANGUAGE plpgsql
SET jit = off AS $$
DECLARE
    now bigint := @now_1(NULL, 0);
    o record;
BEGIN
    DELETE FROM @owners AS w WHERE w.gone_at < clock_timestamp() - interval '1 hour';
    FOR o IN SELECT * FROM @owners AS w WHERE w.gone_at IS NULL ORDER BY w.owner LOOP
        CONTINUE WHEN NOT @is_silent_1(o.owner);
        name := o.owner;
        gone := false;
        IF o.missing_at IS NULL THEN
            UPDATE @owners AS w SET missing_at = clock_timestamp() WHERE w.owner = o.owner;
        -- A server that was just started has lost all sessions, and the living come back one by one: who
        -- has begun since then must not take them for dead.
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
            -- What is locked, by its last commit most likely, is ended at the next look.
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
