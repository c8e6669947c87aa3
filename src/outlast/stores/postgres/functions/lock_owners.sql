-- Takes the shared locks of owners on this session too. The setting `outlast.live` remembers which.
CREATE OR REPLACE FUNCTION @lock_owners(a_owners text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    o text;
    known text := coalesce(current_setting('outlast.live', true), '');
BEGIN
    IF a_owners IS NOT NULL THEN
        FOREACH o IN ARRAY a_owners LOOP
            IF strpos(known, quote_ident(o) || ' ') = 0
               AND pg_try_advisory_lock_shared(@owner_lock_id(o)) THEN
                known := known || quote_ident(o) || ' ';
                PERFORM set_config('outlast.live', known, false);
            END IF;
        END LOOP;
    END IF;
    RETURN true;
END $$;
