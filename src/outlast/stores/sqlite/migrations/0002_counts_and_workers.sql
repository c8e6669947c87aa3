-- How many runs there are: whoever begins, turns or deletes runs adds up what that changes and writes
-- it in the same transaction, once for a batch. Triggers would cost each run twice what its own row
-- does. A row is not removed at 0.
CREATE TABLE run_counts (
    workflow TEXT NOT NULL,
    status   TEXT NOT NULL,
    number   INTEGER NOT NULL,
    PRIMARY KEY (workflow, status)
) WITHOUT ROWID;
INSERT INTO run_counts (workflow, status, number)
SELECT workflow, status, count(*) FROM runs GROUP BY workflow, status;

-- Who is alive, by their own word. `data` is what the worker says of itself.
CREATE TABLE workers (
    owner      TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    data       BLOB NOT NULL
) WITHOUT ROWID;
