-- Runs by their last change, as long as nobody holds them: who works on a run changes it all the time.
CREATE INDEX runs_rested ON runs (updated_at, id) WHERE owner IS NULL;
