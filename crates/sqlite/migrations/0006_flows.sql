-- Flows: tasks that depend on others. A task whose dependencies have not ended is blocked: it
-- waits in a queue with the prefix U+001E, which no claim reads, and has a row in
-- task_engine_suspended_tasks. A task that uses none of this has no row here.

-- What a task depends on has a condition; the children of durable calls have none. Not IN (…):
-- SQLite would build a table for every row.
ALTER TABLE task_engine_task_dependencies ADD COLUMN condition TEXT
    CONSTRAINT a_condition_is_success_end_or_failure
    CHECK (condition = 'success' OR condition = 'end' OR condition = 'failure');

-- A blocked task looks at one task that it depends on, the lowest that has not ended; those
-- below have ended as it needs. Not in the column of children: engines of the version before
-- would resume it, whatever the conditions are.
ALTER TABLE task_engine_suspended_tasks ADD COLUMN blocked_on INTEGER;
CREATE INDEX task_engine_suspended_tasks_by_blocked
    ON task_engine_suspended_tasks (blocked_on)
    WHERE blocked_on IS NOT NULL;

-- A blocked task that depends on one that ran already when it was created: the engine of that
-- one does not know that others wait for it. Every heartbeat looks at them.
ALTER TABLE task_engine_suspended_tasks ADD COLUMN late_watch INTEGER NOT NULL DEFAULT 0
    CONSTRAINT late_watch_is_0_or_1 CHECK (late_watch = 0 OR late_watch = 1);
CREATE INDEX task_engine_suspended_tasks_late
    ON task_engine_suspended_tasks (task_id)
    WHERE late_watch = 1;

-- Flows that were created as such, for lists. Insert only. AUTOINCREMENT: the order of
-- creation.
CREATE TABLE task_engine_flows (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    correlation_id TEXT NOT NULL UNIQUE
        CONSTRAINT a_flow_has_a_correlation_id_of_1_to_200_bytes
        CHECK (length(CAST(correlation_id AS BLOB)) BETWEEN 1 AND 200),
    name           TEXT
        CONSTRAINT a_flow_has_a_name_of_1_to_200_bytes
        CHECK (length(CAST(name AS BLOB)) BETWEEN 1 AND 200),
    created_at     INTEGER NOT NULL
        CONSTRAINT a_flow_is_created_before_the_year_9999 CHECK (created_at < 253370764800000000)
) STRICT;

-- Ended tasks that were retried, and that others depend on: the end by this attempt no longer
-- counts for them. Insert only.
CREATE TABLE task_engine_reopened_tasks (
    task_id INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;

-- How each dependency has ended: open, a status, or removed.
CREATE VIEW task_engine_dependency_states AS
SELECT
    dependency.task_id,
    dependency.depends_on,
    dependency.condition,
    coalesce(
        (
            SELECT CASE
                WHEN ended.ends_task IS NULL THEN 'open'
                WHEN EXISTS (
                    SELECT 1
                    FROM task_engine_reopened_tasks AS reopened
                    WHERE reopened.task_id = ended.task_id AND reopened.attempt = ended.attempt
                ) THEN 'open'
                ELSE ended.ends_task
            END
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = dependency.depends_on
            ORDER BY ended.attempt DESC
            LIMIT 1
        ),
        CASE
            WHEN EXISTS (
                SELECT 1 FROM task_engine_created_tasks AS created WHERE created.id = dependency.depends_on
            ) THEN 'open'
            ELSE 'removed'
        END
    ) AS state
FROM task_engine_task_dependencies AS dependency
WHERE dependency.condition IS NOT NULL;

-- As in 0001, with is_blocked. Its triggers, which are the same as before, go with it.
DROP VIEW task_engine_tasks;
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
    END AS parent_id,
    -- Whether it waits for tasks that it depends on.
    coalesce(substr(waiting.queue, 1, 1) = char(30), 0) AS is_blocked
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

-- As in 0001.
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

-- As in 0005.
CREATE TRIGGER task_engine_tasks_insert_limits INSTEAD OF INSERT ON task_engine_tasks
WHEN CASE WHEN json_valid(NEW.context) THEN json_type(NEW.context, '$.limits') = 'object' ELSE 0 END
BEGIN
    SELECT RAISE(ABORT, 'the context names a limit that does not exist')
    FROM json_each(NEW.context, '$.limits') AS named
    WHERE NOT EXISTS (SELECT 1 FROM task_engine_limits WHERE name = named.key);

    SELECT RAISE(ABORT, 'the context names more than 3 limits')
    WHERE (SELECT count(*) FROM json_each(NEW.context, '$.limits')) > 3;

    UPDATE task_engine_limits_version
    SET number = random()
    WHERE NOT EXISTS (
        SELECT 1 FROM task_engine_classes_naming_limits WHERE task_class = NEW.task_class
    );

    INSERT INTO task_engine_classes_naming_limits (task_class)
    SELECT NEW.task_class
    WHERE NEW.task_class <> ''
    ON CONFLICT DO NOTHING;
END;
