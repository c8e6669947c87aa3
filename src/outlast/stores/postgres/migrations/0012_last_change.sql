-- Runs by their last change, as long as nobody holds them. Who works on a run changes it all the time:
-- a column that stays empty meanwhile keeps those updates on their page, past all indexes.
ALTER TABLE @runs ADD COLUMN rested_at bigint
    GENERATED ALWAYS AS (CASE WHEN owner IS NULL THEN updated_at END) STORED;
CREATE INDEX #runs_rested ON @runs (rested_at, id) WHERE rested_at IS NOT NULL;
