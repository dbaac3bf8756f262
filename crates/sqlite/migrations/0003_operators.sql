-- The audit log, access to the dashboard, and rollups.

-- The audit log. Insert only, enforced by triggers: an entry can be deleted when it is 90
-- days old, and never changed.
CREATE TABLE task_engine_audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    target  TEXT NOT NULL,
    reason  TEXT,
    detail  TEXT NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('started', 'done', 'refused', 'failed')),
    -- The entry of the request, if this one has its outcome.
    of_id   INTEGER,
    CONSTRAINT an_audit_entry_has_at_most_64_kibibytes
        CHECK (length(actor) + length(action) + length(target) + length(detail) + length(coalesce(reason, '')) <= 65536)
) STRICT;

CREATE TRIGGER task_engine_audit_no_update
BEFORE UPDATE ON task_engine_audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only: no UPDATE');
END;

CREATE TRIGGER task_engine_audit_no_delete
BEFORE DELETE ON task_engine_audit
WHEN OLD.at > (CAST(strftime('%s', 'now') AS INTEGER) - 90 * 86400) * 1000000
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only: no DELETE');
END;

-- INSERT OR REPLACE deletes without the trigger above.
CREATE TRIGGER task_engine_audit_no_replace
BEFORE INSERT ON task_engine_audit
WHEN EXISTS (SELECT 1 FROM task_engine_audit WHERE id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only: no REPLACE');
END;

-- Access to the dashboard. Only hashes of tokens are stored.
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

-- A random key of this database, for keyed hashes.
CREATE TABLE task_engine_database_key (
    is_only INTEGER PRIMARY KEY DEFAULT 1 CHECK (is_only = 1),
    key     BLOB NOT NULL CHECK (length(key) = 32)
) STRICT;
INSERT INTO task_engine_database_key (key) VALUES (randomblob(32));

-- Logins to the dashboard that were ended before they expired.
CREATE TABLE task_engine_ended_logins (
    id         BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Rollups: the counters of an engine for one minute and class. An engine writes its own
-- rows only, and only forward.
CREATE TABLE task_engine_rollups (
    minute      INTEGER NOT NULL,
    -- '': all others of this engine.
    task_class  TEXT NOT NULL,
    instance_id INTEGER NOT NULL,
    -- How often the clock had gone back.
    generation  INTEGER NOT NULL,
    ok          INTEGER NOT NULL,
    failed      INTEGER NOT NULL,
    other       INTEGER NOT NULL,
    run_us      INTEGER NOT NULL,
    -- The longest: no estimate exceeds it.
    run_max_us  INTEGER NOT NULL,
    wait_max_us INTEGER NOT NULL,
    run_0       INTEGER NOT NULL,
    run_1       INTEGER NOT NULL,
    run_2       INTEGER NOT NULL,
    run_3       INTEGER NOT NULL,
    run_4       INTEGER NOT NULL,
    run_5       INTEGER NOT NULL,
    run_6       INTEGER NOT NULL,
    run_7       INTEGER NOT NULL,
    run_8       INTEGER NOT NULL,
    run_9       INTEGER NOT NULL,
    run_10      INTEGER NOT NULL,
    run_11      INTEGER NOT NULL,
    run_12      INTEGER NOT NULL,
    run_13      INTEGER NOT NULL,
    run_14      INTEGER NOT NULL,
    run_15      INTEGER NOT NULL,
    run_16      INTEGER NOT NULL,
    run_17      INTEGER NOT NULL,
    run_18      INTEGER NOT NULL,
    run_19      INTEGER NOT NULL,
    run_20      INTEGER NOT NULL,
    run_21      INTEGER NOT NULL,
    run_22      INTEGER NOT NULL,
    run_23      INTEGER NOT NULL,
    run_24      INTEGER NOT NULL,
    run_25      INTEGER NOT NULL,
    run_26      INTEGER NOT NULL,
    run_27      INTEGER NOT NULL,
    wait_0      INTEGER NOT NULL,
    wait_1      INTEGER NOT NULL,
    wait_2      INTEGER NOT NULL,
    wait_3      INTEGER NOT NULL,
    wait_4      INTEGER NOT NULL,
    wait_5      INTEGER NOT NULL,
    wait_6      INTEGER NOT NULL,
    wait_7      INTEGER NOT NULL,
    wait_8      INTEGER NOT NULL,
    wait_9      INTEGER NOT NULL,
    wait_10     INTEGER NOT NULL,
    wait_11     INTEGER NOT NULL,
    wait_12     INTEGER NOT NULL,
    wait_13     INTEGER NOT NULL,
    wait_14     INTEGER NOT NULL,
    wait_15     INTEGER NOT NULL,
    wait_16     INTEGER NOT NULL,
    wait_17     INTEGER NOT NULL,
    wait_18     INTEGER NOT NULL,
    wait_19     INTEGER NOT NULL,
    wait_20     INTEGER NOT NULL,
    wait_21     INTEGER NOT NULL,
    wait_22     INTEGER NOT NULL,
    wait_23     INTEGER NOT NULL,
    wait_24     INTEGER NOT NULL,
    wait_25     INTEGER NOT NULL,
    wait_26     INTEGER NOT NULL,
    wait_27     INTEGER NOT NULL,
    PRIMARY KEY (minute, task_class, instance_id, generation)
) STRICT, WITHOUT ROWID;
