-- A payload as text for people: payloads need not be UTF-8.
CREATE OR REPLACE FUNCTION @readable(data bytea) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(data, 'UTF8');
EXCEPTION WHEN OTHERS THEN
    RETURN encode(data, 'escape');
END $$;
