-- Queue policy: tasks of one key stand in a line, lines take turns, and a queue may have rules.

ALTER TABLE tasks ADD COLUMN line TEXT NOT NULL DEFAULT '';
ALTER TABLE dead_tasks ADD COLUMN line TEXT NOT NULL DEFAULT '';

-- Tasks without a key are found as before, those with one by their line: in order of urgency, and by
-- time to see whether there is one. Neither search walks past the tasks of another line.
DROP INDEX tasks_free;
CREATE INDEX tasks_free ON tasks (queue, priority, ready_at, key, owner, line)
    WHERE owner IS NULL AND line = '';
CREATE INDEX tasks_lined ON tasks (queue, line, priority, ready_at, key, owner)
    WHERE owner IS NULL AND line <> '';
CREATE INDEX tasks_line_ready ON tasks (queue, line, ready_at, owner)
    WHERE owner IS NULL AND line <> '';
-- Whatever its line: how many are ready or delayed, since when, until when.
CREATE INDEX tasks_due ON tasks (queue, ready_at, owner) WHERE owner IS NULL;
CREATE INDEX tasks_line_held ON tasks (line, queue, claimed_until)
    WHERE owner IS NOT NULL AND line <> '';

-- `scope` is the queue that people name: `gpu` for the tasks of `gpu/render`. A line that has nothing
-- to hand out, or may not, sleeps until `wake_at`, so that nobody looks at it in vain. The line
-- without a key is there for queues with rules or with other lines, and never sleeps.
CREATE TABLE lines (
    queue   TEXT NOT NULL,
    line    TEXT NOT NULL,
    scope   TEXT NOT NULL,
    passed  INTEGER NOT NULL,
    wake_at INTEGER,
    PRIMARY KEY (queue, line)
) WITHOUT ROWID;
CREATE INDEX lines_awake ON lines (queue, passed, line) WHERE wake_at IS NULL;
CREATE INDEX lines_asleep ON lines (queue, wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX lines_scope ON lines (scope, line);
CREATE INDEX lines_idle ON lines (scope, passed) WHERE wake_at = 9223372036854775807;

-- The rules of a queue: as they are, as the code last declared them, and where its present is.
CREATE TABLE policies (
    scope    TEXT PRIMARY KEY,
    rules    BLOB,
    declared BLOB,
    present  INTEGER NOT NULL
);
CREATE TABLE policy_changes (
    key   INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    at    INTEGER NOT NULL,
    by    TEXT NOT NULL,
    rules BLOB
);
CREATE INDEX policy_changes_scope ON policy_changes (scope, key);

-- When tasks began, for rates; kept as long as the rate looks back.
CREATE TABLE starts (
    key   INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    line  TEXT NOT NULL,
    at    INTEGER NOT NULL
);
CREATE INDEX starts_scope ON starts (scope, at);
CREATE INDEX starts_line ON starts (scope, line, at) WHERE line <> '';

-- A line is there as soon as it has a task, in the queue's present at the earliest, and wakes when one
-- comes or a place becomes free. When it
-- has none any more it is forgotten, but not before the others have caught up: else who comes with one
-- task at a time would always be first. Triggers, because tasks come and go in many ways, and none of
-- them may forget.
CREATE TRIGGER tasks_come AFTER INSERT ON tasks WHEN NEW.line <> ''
BEGIN
    INSERT INTO lines (queue, line, scope, passed)
    SELECT NEW.queue, NEW.line, s.scope,
           max(coalesce((SELECT max(passed) FROM lines
                         WHERE scope = s.scope AND line = NEW.line), 0),
               coalesce((SELECT present FROM policies WHERE scope = s.scope), 0))
    FROM (SELECT substr(NEW.queue, 1, instr(NEW.queue || '/', '/') - 1) AS scope) AS s
    WHERE true
    ON CONFLICT (queue, line) DO UPDATE SET wake_at = NULL WHERE wake_at IS NOT NULL; END;
CREATE TRIGGER tasks_catch_up AFTER INSERT ON tasks WHEN NEW.line <> ''
BEGIN
    UPDATE lines SET passed = (SELECT present FROM policies WHERE policies.scope = lines.scope)
    WHERE scope = substr(NEW.queue, 1, instr(NEW.queue || '/', '/') - 1) AND line = NEW.line
      AND passed < (SELECT present FROM policies WHERE policies.scope = lines.scope); END;
CREATE TRIGGER tasks_end AFTER DELETE ON tasks WHEN OLD.line <> ''
BEGIN
    DELETE FROM lines
    WHERE queue = OLD.queue AND line = OLD.line
      AND passed <= coalesce((SELECT present FROM policies WHERE policies.scope = lines.scope), 0)
      AND NOT EXISTS (SELECT 1 FROM tasks AS t
                      WHERE t.owner IS NULL AND t.line <> ''
                        AND t.queue = OLD.queue AND t.line = OLD.line)
      AND NOT EXISTS (SELECT 1 FROM tasks AS t
                      WHERE t.owner IS NOT NULL AND t.line <> ''
                        AND t.line = OLD.line AND t.queue = OLD.queue); END;
CREATE TRIGGER tasks_go AFTER DELETE ON tasks WHEN OLD.line <> '' AND OLD.owner IS NOT NULL
BEGIN
    UPDATE lines SET wake_at = NULL
    WHERE scope = substr(OLD.queue, 1, instr(OLD.queue || '/', '/') - 1) AND line = OLD.line
      AND wake_at IS NOT NULL; END;
CREATE TRIGGER tasks_return AFTER UPDATE OF owner, claimed_until ON tasks
WHEN NEW.line <> '' AND OLD.owner IS NOT NULL
 AND (NEW.owner IS NULL OR NEW.claimed_until < OLD.claimed_until)
BEGIN
    UPDATE lines SET wake_at = NULL
    WHERE scope = substr(NEW.queue, 1, instr(NEW.queue || '/', '/') - 1) AND line = NEW.line
      AND wake_at IS NOT NULL; END;
