-- The tables of a store.
--
-- A life of a run is a row of `runs`, named by `key`, which is never used again. All that the life
-- owns refers to that key, so that reusing an id cannot reach what an earlier life has left.
-- There are no foreign keys: one function deletes a run (delete.py), and a lookup for each inserted
-- row would guard nothing else.
--
-- Times are whole microseconds since 1970. Payloads are BLOBs, kept to the byte. Columns that end
-- up in WITHOUT ROWID tables are narrow, or sit at the end of the row.

-- The last token and the last key given out. They only grow, also over deletes. `clock` is the time
-- of the last lease: a process whose clock was set back continues from there.
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
-- Runs by their last change, while they have no owner: an owner changes its run all the time.
CREATE INDEX runs_rested ON runs (updated_at, id) WHERE owner IS NULL;

-- How many runs there are by workflow and status. A transaction that creates, changes or deletes runs
-- adds up what it changes and writes it once. Triggers would cost each run twice what its own row
-- does. A row is not removed at 0.
CREATE TABLE run_counts (
    workflow TEXT NOT NULL,
    status   TEXT NOT NULL,
    number   INTEGER NOT NULL,
    PRIMARY KEY (workflow, status)
) WITHOUT ROWID;

-- What a run starts with, and what it publishes. Two tables, because SQLite rewrites the whole
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

-- `key` grows with every task: it is the order of arrival. Tasks of one key (of the user's) form a
-- fair key, named by `fair_key`.
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
    fair_key          TEXT NOT NULL DEFAULT '',
    UNIQUE (run_id, id, queue)
);
-- `owner` is always NULL in these indexes, and named so that SQLite need not read the row to see it.
-- Tasks with a fair key are found by it, in order of urgency, and by time to see whether there is one.
-- No search walks past the tasks of another fair_key.
CREATE INDEX tasks_free ON tasks (queue, priority, ready_at, key, owner, fair_key)
    WHERE owner IS NULL AND fair_key = '';
CREATE INDEX tasks_by_fair_key ON tasks (queue, fair_key, priority, ready_at, key, owner)
    WHERE owner IS NULL AND fair_key <> '';
CREATE INDEX tasks_fair_key_ready ON tasks (queue, fair_key, ready_at, owner)
    WHERE owner IS NULL AND fair_key <> '';
-- Of any fair key: how many are ready or delayed, since when, until when.
CREATE INDEX tasks_due ON tasks (queue, ready_at, owner) WHERE owner IS NULL;
CREATE INDEX tasks_held ON tasks (queue, claimed_until) WHERE owner IS NOT NULL;
CREATE INDEX tasks_fair_key_held ON tasks (fair_key, queue, claimed_until)
    WHERE owner IS NOT NULL AND fair_key <> '';

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
    fair_key        TEXT NOT NULL DEFAULT '',
    UNIQUE (run_id, id, queue)
);
CREATE INDEX dead_tasks_queue ON dead_tasks (queue, died_at, id);

-- Heartbeats of workers. `data` is what a worker says of itself.
CREATE TABLE workers (
    owner      TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    until      INTEGER NOT NULL,
    data       BLOB NOT NULL
) WITHOUT ROWID;

-- Owners, and the lock files that show that their processes are alive (liveness.py).
CREATE TABLE owners (
    owner   TEXT NOT NULL,
    nonce   TEXT NOT NULL,
    boot    TEXT NOT NULL,
    device  TEXT NOT NULL,
    inode   TEXT NOT NULL,
    gone_at INTEGER,
    PRIMARY KEY (owner, nonce)
) WITHOUT ROWID;

-- Runs whose owner died, how often, and the revision that they had. One that has not changed since may be what kills its
-- owners.
CREATE TABLE deaths (
    key      INTEGER PRIMARY KEY,
    revision INTEGER NOT NULL,
    times    INTEGER NOT NULL
);

-- The fair keys of a queue, for stride scheduling: the fair key with the smallest `pass` is next. `scope` is
-- the queue that people name: `gpu` for the tasks of `gpu/render`. A fair key that has nothing to hand out,
-- or may not, sleeps until `wake_at`, so that no search reads it in vain. The fair key without a key
-- exists for queues with a policy or with other fair keys, and never sleeps.
CREATE TABLE fair_keys (
    queue   TEXT NOT NULL,
    fair_key    TEXT NOT NULL,
    scope   TEXT NOT NULL,
    pass  INTEGER NOT NULL,
    wake_at INTEGER,
    PRIMARY KEY (queue, fair_key)
) WITHOUT ROWID;
CREATE INDEX fair_keys_awake ON fair_keys (queue, pass, fair_key) WHERE wake_at IS NULL;
CREATE INDEX fair_keys_asleep ON fair_keys (queue, wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX fair_keys_scope ON fair_keys (scope, fair_key);
CREATE INDEX fair_keys_idle ON fair_keys (scope, pass) WHERE wake_at = 9223372036854775807;

-- The policy of a queue: as it is, as the code last declared it, and the pass of the key served last.
CREATE TABLE policies (
    scope    TEXT PRIMARY KEY,
    rules    BLOB,
    declared BLOB,
    global_pass  INTEGER NOT NULL
);
CREATE TABLE policy_changes (
    key   INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    at    INTEGER NOT NULL,
    by    TEXT NOT NULL,
    rules BLOB
);
CREATE INDEX policy_changes_scope ON policy_changes (scope, key);

-- When tasks were started, for rates; kept for the period of the rate.
CREATE TABLE starts (
    key   INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    fair_key  TEXT NOT NULL,
    at    INTEGER NOT NULL
);
CREATE INDEX starts_scope ON starts (scope, at);
CREATE INDEX starts_fair_key ON starts (scope, fair_key, at) WHERE fair_key <> '';

-- A fair key exists as soon as it has a task, with the queue's `global_pass` as its pass at least, and wakes
-- when a task comes or a place becomes free. When it has no task left it is deleted, but not before the
-- other fair keys have caught up: otherwise a key with one task at a time would always be first. These are
-- triggers, because tasks come and go by many statements, and none of them may forget the fair_keys.
CREATE TRIGGER tasks_come AFTER INSERT ON tasks WHEN NEW.fair_key <> ''
BEGIN
    INSERT INTO fair_keys (queue, fair_key, scope, pass)
    SELECT NEW.queue, NEW.fair_key, s.scope,
           max(coalesce((SELECT max(pass) FROM fair_keys
                         WHERE scope = s.scope AND fair_key = NEW.fair_key), 0),
               coalesce((SELECT global_pass FROM policies WHERE scope = s.scope), 0))
    FROM (SELECT substr(NEW.queue, 1, instr(NEW.queue || '/', '/') - 1) AS scope) AS s
    WHERE true
    ON CONFLICT (queue, fair_key) DO UPDATE SET wake_at = NULL WHERE wake_at IS NOT NULL; END;
CREATE TRIGGER tasks_catch_up AFTER INSERT ON tasks WHEN NEW.fair_key <> ''
BEGIN
    UPDATE fair_keys SET pass = (SELECT global_pass FROM policies WHERE policies.scope = fair_keys.scope)
    WHERE scope = substr(NEW.queue, 1, instr(NEW.queue || '/', '/') - 1) AND fair_key = NEW.fair_key
      AND pass < (SELECT global_pass FROM policies WHERE policies.scope = fair_keys.scope); END;
CREATE TRIGGER tasks_end AFTER DELETE ON tasks WHEN OLD.fair_key <> ''
BEGIN
    DELETE FROM fair_keys
    WHERE queue = OLD.queue AND fair_key = OLD.fair_key
      AND pass <= coalesce((SELECT global_pass FROM policies WHERE policies.scope = fair_keys.scope), 0)
      AND NOT EXISTS (SELECT 1 FROM tasks AS t
                      WHERE t.owner IS NULL AND t.fair_key <> ''
                        AND t.queue = OLD.queue AND t.fair_key = OLD.fair_key)
      AND NOT EXISTS (SELECT 1 FROM tasks AS t
                      WHERE t.owner IS NOT NULL AND t.fair_key <> ''
                        AND t.fair_key = OLD.fair_key AND t.queue = OLD.queue); END;
CREATE TRIGGER tasks_go AFTER DELETE ON tasks WHEN OLD.fair_key <> '' AND OLD.owner IS NOT NULL
BEGIN
    UPDATE fair_keys SET wake_at = NULL
    WHERE scope = substr(OLD.queue, 1, instr(OLD.queue || '/', '/') - 1) AND fair_key = OLD.fair_key
      AND wake_at IS NOT NULL; END;
CREATE TRIGGER tasks_return AFTER UPDATE OF owner, claimed_until ON tasks
WHEN NEW.fair_key <> '' AND OLD.owner IS NOT NULL
 AND (NEW.owner IS NULL OR NEW.claimed_until < OLD.claimed_until)
BEGIN
    UPDATE fair_keys SET wake_at = NULL
    WHERE scope = substr(NEW.queue, 1, instr(NEW.queue || '/', '/') - 1) AND fair_key = NEW.fair_key
      AND wake_at IS NOT NULL; END;
