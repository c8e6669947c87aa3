-- The store as it begins.
--
-- A life of a run is a row of `runs`, named by `key`, which is never used again. All that the life
-- owns hangs on that key, so that reusing an id cannot reach what an earlier life has left.
-- There are no foreign keys: one function deletes a run (deleting.py), and a lookup per inserted
-- row would guard nothing else.
--
-- Times are whole microseconds since 1970. Payloads are BLOBs, kept to the byte. Columns that end
-- up in WITHOUT ROWID tables are narrow, or sit at the end of the row.

-- The last token and the last key given out. They only grow, also over deletes. `clock` is what time
-- it was when leases were given out last: a process whose clock was set back goes on from there.
CREATE TABLE counters (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    token   INTEGER NOT NULL,
    run_key INTEGER NOT NULL,
    clock   INTEGER NOT NULL
);
INSERT INTO counters (one, token, run_key, clock) VALUES (1, 0, 0, 0);

-- What changes with most commits. Kept short, because a commit rewrites the row.
CREATE TABLE runs (
    key           INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE,
    uid           TEXT NOT NULL,
    workflow      TEXT NOT NULL,
    parent        TEXT,
    status        TEXT NOT NULL,
    wait_kind     TEXT,
    current_step  TEXT,
    runnable_at   INTEGER,
    owner         TEXT,
    token         INTEGER NOT NULL,
    claimed_until INTEGER,
    sequence      INTEGER NOT NULL,
    revision      INTEGER NOT NULL,
    commit_id     TEXT NOT NULL,
    inbox         INTEGER NOT NULL,
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    ended_at      INTEGER
);
CREATE INDEX runs_created ON runs (created_at, id);
CREATE INDEX runs_filed ON runs (workflow, status, created_at, id);
CREATE INDEX runs_parent ON runs (parent, created_at, id) WHERE parent IS NOT NULL;
-- Free and held runs are indexed apart: a claimer walks neither past what others hold, nor past
-- workflows that it has no code for.
CREATE INDEX runs_runnable ON runs (workflow, runnable_at, id)
    WHERE runnable_at IS NOT NULL AND owner IS NULL;
CREATE INDEX runs_held ON runs (claimed_until, runnable_at) WHERE owner IS NOT NULL;
CREATE INDEX runs_ended ON runs (ended_at, id) WHERE ended_at IS NOT NULL;

-- What a run begins with, and what it has to say. Two tables, because SQLite rewrites the whole
-- row: publishing a small value must not write a large input again. No row: all defaults.
CREATE TABLE run_details (
    key        INTEGER PRIMARY KEY,
    version    TEXT,
    definition TEXT,
    queue      TEXT,
    priority   INTEGER,
    attributes TEXT,
    input      BLOB
);
CREATE TABLE run_values (
    key        INTEGER PRIMARY KEY,
    error      TEXT,
    recover_to TEXT,
    rejected_by TEXT,
    ctx        BLOB,
    result     BLOB,
    halt_data  BLOB
);

-- `run_details.attributes` is the record; these rows are its index. `value` is tagged with its
-- type: in a filter, true is not 1.
CREATE TABLE attributes (
    run_key    INTEGER NOT NULL,
    name       TEXT NOT NULL,
    value      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (run_key, name)
) WITHOUT ROWID;
CREATE INDEX attributes_value ON attributes (name, value, created_at);

-- Clustered by run, so that a history is read from neighbouring pages.
CREATE TABLE events (
    run_key   INTEGER NOT NULL,
    sequence  INTEGER NOT NULL,
    id        TEXT NOT NULL,
    type      TEXT NOT NULL,
    version   INTEGER NOT NULL,
    step_name TEXT NOT NULL,
    timestamp INTEGER NOT NULL,
    token     INTEGER NOT NULL,
    metadata  TEXT,
    data      BLOB NOT NULL,
    output    BLOB,
    PRIMARY KEY (run_key, sequence)
) WITHOUT ROWID;
CREATE UNIQUE INDEX events_id ON events (run_key, id);

-- Items wait in `inbox` until they are consumed; `receipts` remembers for the life of the run that
-- they came, so that the same item is taken once.
CREATE TABLE inbox (
    run_key INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    id      TEXT NOT NULL,
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    sender  TEXT NOT NULL,
    sent_at INTEGER NOT NULL,
    data    BLOB,
    PRIMARY KEY (run_key, number)
) WITHOUT ROWID;
CREATE TABLE receipts (
    run_key INTEGER NOT NULL,
    id      TEXT NOT NULL,
    number  INTEGER NOT NULL,
    PRIMARY KEY (run_key, id)
) WITHOUT ROWID;

CREATE TABLE timers (
    run_key INTEGER NOT NULL,
    id      TEXT NOT NULL,
    fire_at INTEGER NOT NULL,
    fired   INTEGER NOT NULL,
    PRIMARY KEY (run_key, id)
) WITHOUT ROWID;
CREATE INDEX timers_due ON timers (fire_at) WHERE fired = 0;

CREATE TABLE entries (
    key         INTEGER PRIMARY KEY,
    run_key     INTEGER NOT NULL,
    timestamp   INTEGER NOT NULL,
    id          TEXT NOT NULL,
    step_id     TEXT NOT NULL,
    step_type   TEXT NOT NULL,
    action      TEXT NOT NULL,
    duration_ms INTEGER,
    error       TEXT,
    input       BLOB,
    output      BLOB
);
CREATE INDEX entries_run ON entries (run_key, timestamp, key);

CREATE TABLE activities (
    id         TEXT PRIMARY KEY,
    run_key    INTEGER NOT NULL,
    name       TEXT NOT NULL,
    status     TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    started_at INTEGER,
    ended_at   INTEGER,
    error      TEXT,
    input      BLOB,
    output     BLOB
);
CREATE INDEX activities_run ON activities (run_key, id);

CREATE TABLE snapshots (
    run_key  INTEGER PRIMARY KEY,
    run_id   TEXT NOT NULL UNIQUE,
    envelope BLOB NOT NULL
);

CREATE TABLE facts (
    root TEXT NOT NULL,
    hash TEXT NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (root, hash)
);

CREATE TABLE keys (
    scope  TEXT NOT NULL,
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    run_id TEXT,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX keys_run ON keys (run_id) WHERE run_id IS NOT NULL;

-- `key` grows with every task, so that it tells the order of arrival.
CREATE TABLE tasks (
    key           INTEGER PRIMARY KEY,
    queue         TEXT NOT NULL,
    run_id        TEXT NOT NULL,
    id            TEXT NOT NULL,
    uid           TEXT NOT NULL,
    kind          TEXT NOT NULL,
    name          TEXT NOT NULL,
    step          TEXT NOT NULL,
    definition    TEXT NOT NULL,
    priority      INTEGER NOT NULL,
    run_at        INTEGER,
    attempt       INTEGER NOT NULL,
    metadata      TEXT,
    enqueued_at   INTEGER NOT NULL,
    input         BLOB,
    ready_at      INTEGER NOT NULL,
    token         INTEGER NOT NULL,
    owner         TEXT,
    claimed_until INTEGER,
    UNIQUE (run_id, id, queue)
);
-- `owner` is always NULL in there, and named so that SQLite need not look at the row to see it.
CREATE INDEX tasks_free ON tasks (queue, priority, ready_at, key, owner) WHERE owner IS NULL;
CREATE INDEX tasks_held ON tasks (queue, claimed_until) WHERE owner IS NOT NULL;

CREATE TABLE dead_tasks (
    key         INTEGER PRIMARY KEY,
    queue       TEXT NOT NULL,
    run_id      TEXT NOT NULL,
    id          TEXT NOT NULL,
    uid         TEXT NOT NULL,
    kind        TEXT NOT NULL,
    name        TEXT NOT NULL,
    step        TEXT NOT NULL,
    definition  TEXT NOT NULL,
    priority    INTEGER NOT NULL,
    run_at      INTEGER,
    attempt     INTEGER NOT NULL,
    metadata    TEXT,
    enqueued_at INTEGER NOT NULL,
    input       BLOB,
    reason      TEXT NOT NULL,
    died_at     INTEGER NOT NULL,
    UNIQUE (run_id, id, queue)
);
CREATE INDEX dead_tasks_queue ON dead_tasks (queue, died_at, id);
