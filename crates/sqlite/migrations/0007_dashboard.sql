-- What operators did, who may, and figures to draw.

-- What operators did. Insert only, and the table itself sees to it.
CREATE TABLE task_engine_audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    reason  TEXT,
    detail  TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('asked', 'done', 'refused', 'failed')),
    -- The entry that asked, if this one tells the outcome.
    of_id   INTEGER
) STRICT;

CREATE TRIGGER task_engine_audit_keeps
BEFORE UPDATE ON task_engine_audit
BEGIN
    SELECT RAISE(ABORT, 'the record of what operators did is append-only: no UPDATE');
END;

CREATE TRIGGER task_engine_audit_forgets_nothing
BEFORE DELETE ON task_engine_audit
BEGIN
    SELECT RAISE(ABORT, 'the record of what operators did is append-only: no DELETE');
END;

-- INSERT OR REPLACE deletes without the trigger above.
CREATE TRIGGER task_engine_audit_replaces_nothing
BEFORE INSERT ON task_engine_audit
WHEN EXISTS (SELECT 1 FROM task_engine_audit WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'the record of what operators did is append-only: no REPLACE');
END;

-- Who may use the dashboard. A token itself is nowhere; its hash is of no use.
CREATE TABLE task_engine_tokens (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin')),
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;
CREATE UNIQUE INDEX task_engine_tokens_by_name ON task_engine_tokens (name)
WHERE revoked_at IS NULL;
