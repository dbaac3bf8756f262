-- Durable tasks: recorded steps, signals, and tasks that wait for others. A task that uses
-- none of this has no row here.

-- Recorded steps. Insert only; the primary key decides which record of a name counts.
CREATE TABLE task_engine_steps (
    task_id     INTEGER NOT NULL,
    -- Longer than the 200 bytes of a name: a repetition has a number behind it.
    name        TEXT NOT NULL
        CONSTRAINT a_step_has_a_name_of_1_to_220_bytes
        CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 220),
    number      INTEGER NOT NULL,
    -- The attempt that recorded it; 0 if it was copied from another task.
    attempt     INTEGER NOT NULL,
    -- step: result. sleep: until. wait (for the signal of its name): until. call: the ids
    -- of the children as its result. Not IN (…): SQLite would build a table for every row.
    kind        TEXT NOT NULL
        CONSTRAINT a_kind_of_a_step_is_step_sleep_wait_or_call
        CHECK (kind = 'step' OR kind = 'sleep' OR kind = 'wait' OR kind = 'call'),
    result      TEXT
        CONSTRAINT a_result_of_a_step_has_at_most_1_mebibyte
        CHECK (length(CAST(result AS BLOB)) <= 1048576),
    until       INTEGER
        CONSTRAINT a_step_ends_before_the_year_9999 CHECK (until < 253370764800000000),
    started_at  INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (task_id, name)
) STRICT, WITHOUT ROWID;

-- Signals to tasks. Insert only; the first row of a name counts. The timeout of a wait is
-- a row, too, so that the primary key decides between the signal and the timeout.
CREATE TABLE task_engine_signals (
    task_id   INTEGER NOT NULL,
    name      TEXT NOT NULL
        CONSTRAINT a_signal_has_a_name_of_1_to_220_bytes
        CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 220),
    payload   TEXT NOT NULL
        CONSTRAINT a_payload_of_a_signal_has_at_most_1_mebibyte
        CHECK (length(CAST(payload AS BLOB)) <= 1048576)
        CONSTRAINT a_payload_of_a_signal_is_json CHECK (json_valid(payload)),
    sent_at   INTEGER NOT NULL,
    timed_out INTEGER NOT NULL DEFAULT 0
        CONSTRAINT timed_out_is_0_or_1 CHECK (timed_out = 0 OR timed_out = 1),
    PRIMARY KEY (task_id, name)
) STRICT, WITHOUT ROWID;

-- Which tasks a task waits for. Insert only.
CREATE TABLE task_engine_task_dependencies (
    task_id    INTEGER NOT NULL,
    depends_on INTEGER NOT NULL,
    PRIMARY KEY (task_id, depends_on)
) STRICT, WITHOUT ROWID;

-- For retention, which keeps the children of open tasks.
CREATE INDEX task_engine_task_dependencies_by_child
    ON task_engine_task_dependencies (depends_on);

-- Tasks that are suspended until a signal arrives or their children have ended. A row
-- counts only while the task waits for the attempt after this one.
CREATE TABLE task_engine_suspended_tasks (
    task_id  INTEGER PRIMARY KEY,
    attempt  INTEGER NOT NULL,
    -- The names of the signals that wake it.
    signals  TEXT NOT NULL
        CONSTRAINT signals_are_a_json_array
        CHECK (CASE WHEN json_valid(signals) THEN json_type(signals) = 'array' ELSE 0 END),
    -- A child that has not ended: its end is looked at next. Only moves to higher ids.
    watching INTEGER
) STRICT;

CREATE INDEX task_engine_suspended_tasks_by_watched
    ON task_engine_suspended_tasks (watching)
    WHERE watching IS NOT NULL;

-- Whether a child has ended, for each task that waits for it: its newest attempt ended it,
-- or it was removed. A child that an operator retries counts as ended until its next
-- attempt has ended.
CREATE VIEW task_engine_awaited_children AS
SELECT
    dependency.task_id,
    dependency.depends_on,
    coalesce(
        (
            SELECT ended.ends_task IS NOT NULL
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = dependency.depends_on
            ORDER BY ended.attempt DESC
            LIMIT 1
        ),
        NOT EXISTS (
            SELECT 1 FROM task_engine_created_tasks AS created WHERE created.id = dependency.depends_on
        )
    ) AS has_ended
FROM task_engine_task_dependencies AS dependency;

-- Tasks that retention keeps for their parents. A parent reads the results of its children
-- whenever it runs: also if an operator retries it. Only one that has succeeded never runs
-- again.
CREATE VIEW task_engine_kept_children AS
SELECT dependency.depends_on AS task_id, dependency.task_id AS parent_id
FROM task_engine_task_dependencies AS dependency
WHERE EXISTS (
    SELECT 1 FROM task_engine_created_tasks AS parent WHERE parent.id = dependency.task_id
)
AND (
    SELECT ended.ends_task
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = dependency.task_id
    ORDER BY ended.attempt DESC
    LIMIT 1
) IS NOT 'stopped';
