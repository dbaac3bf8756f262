-- The ledger: the big tables are only ever appended to, and an attempt ends
-- exactly once because a primary key says so.
--
-- Everything is prefixed, because an application may keep its own tables in
-- this file. Times are microseconds since the Unix epoch.

-- Requested tasks. AUTOINCREMENT: an id is never used again, not even after
-- retention has removed its task.
CREATE TABLE task_engine_created_tasks (
    -- Not the last number: a page "below an id" must be able to begin above all tasks.
    id              INTEGER PRIMARY KEY AUTOINCREMENT
        CONSTRAINT an_id_is_not_the_last_number CHECK (id < 9223372036854775807),
    task_class      TEXT NOT NULL
        CONSTRAINT a_task_class_has_a_name CHECK (task_class <> '')
        CONSTRAINT a_task_class_has_at_most_200_bytes CHECK (length(CAST(task_class AS BLOB)) <= 200),
    task_parameters TEXT NOT NULL
        CONSTRAINT task_parameters_have_at_most_1_mebibyte
        CHECK (length(CAST(task_parameters AS BLOB)) <= 1048576)
        CONSTRAINT task_parameters_are_a_json_object
        CHECK (CASE WHEN json_valid(task_parameters) THEN json_type(task_parameters) = 'object' ELSE 0 END),
    context         TEXT NOT NULL
        CONSTRAINT the_context_has_at_most_1_mebibyte
        CHECK (length(CAST(context AS BLOB)) <= 1048576)
        CONSTRAINT the_context_is_a_json_object
        CHECK (CASE WHEN json_valid(context) THEN json_type(context) = 'object' ELSE 0 END)
        CONSTRAINT a_correlation_id_is_a_text_of_1_to_200_bytes
        CHECK (context = '{}' OR NOT json_valid(context) OR CASE json_type(context, '$.correlation_id')
            WHEN 'text' THEN length(CAST(context ->> '$.correlation_id' AS BLOB)) BETWEEN 1 AND 200
            WHEN 'null' THEN 1
            ELSE json_type(context, '$.correlation_id') IS NULL
        END),
    queue           TEXT NOT NULL
        CONSTRAINT a_queue_has_a_name CHECK (queue <> '')
        CONSTRAINT a_queue_has_at_most_200_bytes CHECK (length(CAST(queue AS BLOB)) <= 200),
    priority        INTEGER NOT NULL
        CONSTRAINT a_priority_has_32_bits CHECK (priority BETWEEN -2147483648 AND 2147483647),
    -- Before the year 9999: what comes later no calendar here can show.
    scheduled_at    INTEGER NOT NULL
        CONSTRAINT a_task_is_scheduled_for_a_time_before_the_year_9999
        CHECK (scheduled_at < 253370764800000000),
    created_at      INTEGER NOT NULL
) STRICT;

-- The queue. Rows are inserted and deleted, never updated.
CREATE TABLE task_engine_waiting_tasks (
    task_id      INTEGER PRIMARY KEY,
    queue        TEXT NOT NULL,
    task_class   TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    -- The number that the next attempt will have.
    attempt      INTEGER NOT NULL,
    retry_number INTEGER NOT NULL
) STRICT;

-- Queue and class come first, so that a claim never reads tasks of classes that its
-- engine does not serve; then priority, so that it never reads future tasks of a higher
-- one. The task_id is part of the index without being named: it is the row's own key.
CREATE INDEX task_engine_waiting_lanes
    ON task_engine_waiting_tasks (queue, task_class, priority, due_at);

-- Claims: one row for each batch that an engine holds.
CREATE TABLE task_engine_claims (
    id          INTEGER PRIMARY KEY,
    instance_id INTEGER NOT NULL,
    claimed_at  INTEGER NOT NULL,
    -- [[task_id, attempt, retry_number], …]
    attempts    TEXT NOT NULL
        CONSTRAINT attempts_are_a_json_array
        CHECK (CASE WHEN json_valid(attempts) THEN json_type(attempts) = 'array' ELSE 0 END)
) STRICT;

-- One row an attempt that has ended: a success if it has no error. One that
-- postponed its task has the error Snoozed, and no ends_task.
CREATE TABLE task_engine_ended_executions (
    task_id      INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    retry_number INTEGER NOT NULL,
    -- Set if the holder of the claim wrote this itself. Null if recovery did,
    -- or an operator: whatever the holder sends then is late.
    claim_id     INTEGER,
    -- Null if no engine ever held the attempt.
    instance_id  INTEGER,
    worker       INTEGER,
    -- Null if it never started.
    started_at   INTEGER,
    stopped_at   INTEGER NOT NULL,
    result       TEXT
        CONSTRAINT a_result_has_at_most_1_mebibyte CHECK (length(CAST(result AS BLOB)) <= 1048576),
    error        TEXT
        CONSTRAINT an_error_has_at_most_1_mebibyte CHECK (length(CAST(error AS BLOB)) <= 1048576),
    -- Not IN (…): SQLite would build a table of the three for every row.
    ends_task    TEXT
        CONSTRAINT a_task_ends_in_a_known_status
        CHECK (ends_task = 'stopped' OR ends_task = 'failed' OR ends_task = 'cancelled'),
    retry_at     INTEGER,
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;

-- For pages and retention of failed and cancelled tasks, of which there are few.
CREATE INDEX task_engine_failed_or_cancelled
    ON task_engine_ended_executions (ends_task, task_id, stopped_at)
    WHERE ends_task <> 'stopped';

-- Results that arrived after the attempt had ended: evidence only.
CREATE TABLE task_engine_late_results (
    task_id     INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    arrived_at  INTEGER NOT NULL,
    claim_id    INTEGER NOT NULL,
    instance_id INTEGER NOT NULL,
    worker      INTEGER,
    started_at  INTEGER,
    stopped_at  INTEGER NOT NULL,
    result      TEXT
        CONSTRAINT a_late_result_has_at_most_1_mebibyte CHECK (length(CAST(result AS BLOB)) <= 1048576),
    error       TEXT
        CONSTRAINT a_late_error_has_at_most_1_mebibyte CHECK (length(CAST(error AS BLOB)) <= 1048576),
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;

-- Requests to cancel a running attempt. AUTOINCREMENT: a listener sees a new request
-- by its higher id.
CREATE TABLE task_engine_cancel_requests (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id      INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    UNIQUE (task_id, attempt)
) STRICT;

-- Engine sessions: one row from register to unregister.
CREATE TABLE task_engine_instances (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    name         TEXT NOT NULL,
    host         TEXT NOT NULL,
    pid          INTEGER NOT NULL,
    process      TEXT,
    version      TEXT NOT NULL,
    workers      INTEGER NOT NULL,
    lease_ms     INTEGER NOT NULL,
    queues       TEXT NOT NULL,
    -- With their rules, so that recovery needs none of the application's code.
    classes      TEXT NOT NULL,
    -- Which workers take from which queues:
    -- [{"queues": ["mail"], "workers": 10, "lowest_priority": 5}, …]
    pools        TEXT NOT NULL DEFAULT '[]',
    started_at   INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    stopped_at   INTEGER,
    lost_at      INTEGER
) STRICT;

-- No two live engines share a name.
CREATE UNIQUE INDEX task_engine_instances_live_by_name
    ON task_engine_instances (name)
    WHERE stopped_at IS NULL AND lost_at IS NULL;

CREATE INDEX task_engine_instances_by_name ON task_engine_instances (name);

-- Flows: tasks that belong together share a correlation id, in their context. A
-- task without one begins a flow of its own, whose name is its own id: it has no
-- row in this index. The first comparison spares it the parsing of its context.
CREATE INDEX task_engine_created_by_correlation
    ON task_engine_created_tasks (context ->> '$.correlation_id')
    WHERE context <> '{}' AND context ->> '$.correlation_id' IS NOT NULL;

-- Queues that engines take no tasks from. Every claim reads this table.
CREATE TABLE task_engine_paused_queues (
    queue     TEXT PRIMARY KEY,
    reason    TEXT
        CONSTRAINT the_reason_of_a_pause_has_at_most_1000_bytes CHECK (length(CAST(reason AS BLOB)) <= 1000),
    paused_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Unique tasks: a key belongs to one task of a class at a time, the last one
-- that was created with it. The key is also in the context of its task
-- (unique_key), so that the row is found from there: no second index.
CREATE TABLE task_engine_unique_tasks (
    task_class TEXT NOT NULL,
    unique_key TEXT NOT NULL
        CONSTRAINT a_unique_key_has_1_to_500_bytes
        CHECK (length(CAST(unique_key AS BLOB)) BETWEEN 1 AND 500),
    task_id    INTEGER NOT NULL,
    PRIMARY KEY (task_class, unique_key)
) STRICT, WITHOUT ROWID;

-- Progress: one row for each attempt that reported something. Only its engine writes
-- it.
CREATE TABLE task_engine_execution_progress (
    task_id     INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    -- Grows with every report.
    version     INTEGER NOT NULL,
    -- Of the whole log, with dropped ones.
    lines       INTEGER NOT NULL,
    percent     REAL,
    message     TEXT
        CONSTRAINT a_message_of_progress_has_at_most_16_kibibytes CHECK (length(message) <= 16384),
    -- Of the percentage and the message.
    reported_at INTEGER,
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;

-- Logs: one row for each line. Insert only; a number without a row was dropped.
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

-- Cancel requests whose attempt has ended. Insert only. The response is written with the
-- end of the attempt; without one (null), the attempt ended before its code could
-- respond.
CREATE TABLE task_engine_cancellations (
    task_id      INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    requested_at INTEGER NOT NULL,
    delivered_at      INTEGER,
    answer       TEXT,
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;

-- The attempts that engines hold. A claim stays until its last attempt has
-- ended, so those that have ended are taken out; and those of tasks that
-- retention has removed since, together with the record of their end.
CREATE VIEW task_engine_held_attempts AS
SELECT
    claim.id AS claim_id,
    claim.instance_id,
    claim.claimed_at,
    held.value ->> 0 AS task_id,
    held.value ->> 1 AS attempt,
    held.value ->> 2 AS retry_number
FROM task_engine_claims AS claim, json_each(claim.attempts) AS held
WHERE NOT EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = held.value ->> 0 AND ended.attempt = held.value ->> 1
)
AND EXISTS (
    SELECT 1 FROM task_engine_created_tasks AS created WHERE created.id = held.value ->> 0
);

-- Tasks as the book has them. For reading one, or the newest: to look for a
-- status through this view reads the whole history.
CREATE VIEW task_engine_tasks AS
SELECT
    created.id,
    CASE
        WHEN waiting.task_id IS NOT NULL THEN 'waiting'
        WHEN held.task_id IS NOT NULL THEN 'running'
        ELSE ended.ends_task
    END AS status,
    created.task_class,
    created.task_parameters,
    json_set(
        created.context, '$.retry_number',
        coalesce(waiting.retry_number, held.retry_number, ended.retry_number, 0)
    ) AS context,
    created.queue,
    created.priority,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(
        waiting.due_at,
        CASE WHEN held.task_id IS NOT NULL THEN ended.retry_at END,
        created.scheduled_at
    ) / 1000000.0, 'unixepoch') AS scheduled_at,
    instance.name AS instance,
    strftime('%Y-%m-%dT%H:%M:%fZ', created.created_at / 1000000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', coalesce(
        CASE WHEN waiting.task_id IS NULL THEN held.claimed_at END,
        ended.stopped_at,
        created.created_at
    ) / 1000000.0, 'unixepoch') AS updated_at,
    -- The result of a task that succeeded.
    CASE WHEN waiting.task_id IS NULL AND held.task_id IS NULL THEN ended.result END AS result,
    -- A task that has none begins a flow of its own.
    coalesce(created.context ->> '$.correlation_id', CAST(created.id AS TEXT)) AS correlation_id,
    CASE json_type(created.context, '$.parent_id')
        WHEN 'integer' THEN created.context ->> '$.parent_id'
    END AS parent_id
FROM task_engine_created_tasks AS created
LEFT JOIN task_engine_waiting_tasks AS waiting ON waiting.task_id = created.id
LEFT JOIN task_engine_held_attempts AS held ON held.task_id = created.id
LEFT JOIN task_engine_ended_executions AS ended
    ON ended.task_id = created.id
    AND ended.attempt = (
        SELECT max(last.attempt) FROM task_engine_ended_executions AS last WHERE last.task_id = created.id
    )
LEFT JOIN task_engine_instances AS instance
    ON waiting.task_id IS NULL AND instance.id = coalesce(held.instance_id, ended.instance_id);

-- Executions as the book has them: those that have started.
-- The id is made of the two that identify an execution; a task's attempts follow
-- each other in its order.
CREATE VIEW task_engine_task_executions AS
SELECT
    ended.task_id * 2147483648 + ended.attempt AS id,
    ended.task_id,
    ended.attempt,
    ended.retry_number,
    CASE
        WHEN ended.error IS NULL THEN 'success'
        WHEN ended.ends_task IS NULL AND ended.error ->> '$.exception' = 'Snoozed' THEN 'snoozed'
        ELSE 'failure'
    END AS status,
    instance.name AS instance,
    ended.worker,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended.started_at / 1000000.0, 'unixepoch') AS started_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended.stopped_at / 1000000.0, 'unixepoch') AS stopped_at,
    ended.result,
    ended.error
FROM task_engine_ended_executions AS ended
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE ended.started_at IS NOT NULL
UNION ALL
SELECT
    held.task_id * 2147483648 + held.attempt,
    held.task_id,
    held.attempt,
    held.retry_number,
    'running',
    instance.name,
    NULL,
    strftime('%Y-%m-%dT%H:%M:%fZ', held.claimed_at / 1000000.0, 'unixepoch'),
    NULL,
    NULL,
    NULL
FROM task_engine_held_attempts AS held
LEFT JOIN task_engine_instances AS instance ON instance.id = held.instance_id;

-- Any SQL client creates a complete task by a plain INSERT into the view.
-- `scheduled_at` is a time as SQLite reads it: text in UTC, or Unix seconds.
-- Julian days give milliseconds on every SQLite since 3.38; a client that writes
-- here may be older than 3.42, which has unixepoch('subsec').
CREATE TRIGGER task_engine_tasks_insert INSTEAD OF INSERT ON task_engine_tasks
BEGIN
    SELECT RAISE(ABORT, 'a task needs a task_class')
    WHERE coalesce(NEW.task_class, '') = '';

    SELECT RAISE(ABORT, 'task_parameters must be a JSON object, like {"name": "value"}')
    WHERE NOT CASE
        WHEN NEW.task_parameters IS NULL THEN 1
        WHEN json_valid(NEW.task_parameters) THEN json_type(NEW.task_parameters) = 'object'
        ELSE 0
    END;

    SELECT RAISE(ABORT, 'context must be a JSON object, like {"correlation_id": "abc"}')
    WHERE NOT CASE
        WHEN NEW.context IS NULL THEN 1
        WHEN json_valid(NEW.context) THEN json_type(NEW.context) = 'object'
        ELSE 0
    END;

    -- As the store checks them, but for a lone surrogate, which only a claim finds.
    -- A path with fewer dots and brackets than levels does not exist; only then is
    -- the way to the top counted, which is slow.
    SELECT RAISE(ABORT, 'task_parameters or context is nested deeper than 64 levels')
    FROM (SELECT NEW.task_parameters AS value UNION ALL SELECT NEW.context) AS given
    WHERE CASE
        WHEN EXISTS (
            SELECT 1
            FROM json_tree(given.value) AS node
            WHERE node.type IN ('object', 'array')
                AND length(node.fullkey) - length(replace(replace(node.fullkey, '.', ''), '[', '')) > 63
        ) THEN (
            WITH RECURSIVE nested (id, level) AS (
                SELECT node.id, 1 FROM json_tree(given.value) AS node WHERE node.parent IS NULL
                UNION ALL
                SELECT node.id, nested.level + 1
                FROM nested CROSS JOIN json_tree(given.value) AS node
                WHERE node.parent = nested.id AND node.type IN ('object', 'array')
            )
            SELECT max(level) FROM nested
        ) > 64
        ELSE 0
    END;

    SELECT RAISE(ABORT, 'task_parameters or context has a number that is too large; send it as a string')
    FROM (SELECT NEW.task_parameters AS value UNION ALL SELECT NEW.context) AS given
    WHERE EXISTS (
        SELECT 1
        FROM json_tree(given.value) AS node
        WHERE node.type IN ('integer', 'real') AND abs(node.atom) > 1.7976931348623157e308
    );

    SELECT RAISE(ABORT, 'task_parameters or context has the character \u0000, which cannot be stored')
    FROM (SELECT NEW.task_parameters AS value UNION ALL SELECT NEW.context) AS given
    WHERE instr(replace(given.value, '\\', ''), '\u0000') > 0;

    SELECT RAISE(ABORT, 'scheduled_at must be a time in UTC, like 2030-01-31 12:00:00, or Unix seconds')
    WHERE NEW.scheduled_at IS NOT NULL AND julianday(NEW.scheduled_at, 'auto') IS NULL;

    INSERT INTO task_engine_created_tasks
        (task_class, task_parameters, context, queue, priority, scheduled_at, created_at)
    SELECT
        NEW.task_class,
        coalesce(NEW.task_parameters, '{}'),
        CASE
            WHEN coalesce(NEW.correlation_id, NEW.parent_id) IS NULL THEN coalesce(NEW.context, '{}')
            -- A null in a patch would remove what the context says.
            ELSE json_patch(
                json_patch(
                    coalesce(NEW.context, '{}'),
                    iif(NEW.correlation_id IS NULL, '{}', json_object('correlation_id', NEW.correlation_id))
                ),
                iif(NEW.parent_id IS NULL, '{}', json_object('parent_id', NEW.parent_id))
            )
        END,
        coalesce(NEW.queue, 'default'),
        coalesce(NEW.priority, 0),
        coalesce(
            CAST(round((julianday(NEW.scheduled_at, 'auto') - 2440587.5) * 86400000) AS INTEGER) * 1000,
            clock.now
        ),
        clock.now
    FROM (
        SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000 AS now
    ) AS clock;

    INSERT INTO task_engine_waiting_tasks
        (task_id, queue, task_class, priority, due_at, attempt, retry_number)
    SELECT id, queue, task_class, priority, scheduled_at, 1, 0
    FROM task_engine_created_tasks
    WHERE id = last_insert_rowid();
END;
