-- What attempts say while they run, and what became of wishes to cancel them.

-- One row an attempt that has said something. Its holder alone writes it, and an
-- attempt has one holder ever.
CREATE TABLE task_engine_execution_progress (
    task_id     INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    -- Grows with all that is said.
    version     INTEGER NOT NULL,
    -- Said in all, with those that were dropped.
    lines       INTEGER NOT NULL,
    percent     REAL,
    message     TEXT
        CONSTRAINT a_message_of_progress_has_at_most_16_kibibytes CHECK (length(message) <= 16384),
    -- Of the percentage and the message.
    reported_at INTEGER,
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;

-- One row a line. Insert only; a number without a row was dropped.
CREATE TABLE task_engine_execution_logs (
    task_id   INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    line      INTEGER NOT NULL,
    logged_at INTEGER NOT NULL,
    level     TEXT NOT NULL,
    message   TEXT NOT NULL
        CONSTRAINT a_line_of_a_log_has_at_most_16_kibibytes CHECK (length(message) <= 16384),
    PRIMARY KEY (task_id, attempt, line)
) STRICT;

-- Wishes to cancel a running attempt that are over. Insert only. The engine's
-- word is written with the end of the attempt; without one (null), the attempt
-- ended before its code could answer.
CREATE TABLE task_engine_cancellations (
    task_id      INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    told_at      INTEGER,
    answer       TEXT,
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;
