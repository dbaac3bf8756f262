-- name: dependencies
-- What a task depends on, with what its status follows from. A range of the primary key; the
-- rest by keys.
SELECT
    dependency.depends_on,
    dependency.condition,
    CASE json_type(created.context, '$.flow_task') WHEN 'text' THEN created.context ->> '$.flow_task' END,
    created.id IS NOT NULL,
    EXISTS (
        SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = dependency.depends_on
    ),
    (
        SELECT ended.ends_task
        FROM task_engine_ended_executions AS ended
        WHERE ended.task_id = dependency.depends_on
        ORDER BY ended.attempt DESC
        LIMIT 1
    )
FROM task_engine_task_dependencies AS dependency
LEFT JOIN task_engine_created_tasks AS created ON created.id = dependency.depends_on
WHERE dependency.task_id = ?1 AND dependency.condition IS NOT NULL
ORDER BY dependency.depends_on
LIMIT ?2;

-- name: dependents
-- The same about a task that others depend on. By task_engine_task_dependencies_by_child.
SELECT
    dependency.task_id,
    dependency.condition,
    CASE json_type(created.context, '$.flow_task') WHEN 'text' THEN created.context ->> '$.flow_task' END,
    created.id IS NOT NULL,
    EXISTS (
        SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = dependency.depends_on
    ),
    (
        SELECT ended.ends_task
        FROM task_engine_ended_executions AS ended
        WHERE ended.task_id = dependency.depends_on
        ORDER BY ended.attempt DESC
        LIMIT 1
    )
FROM task_engine_task_dependencies AS dependency
    INDEXED BY task_engine_task_dependencies_by_child
LEFT JOIN task_engine_created_tasks AS created ON created.id = dependency.depends_on
WHERE dependency.depends_on = ?1 AND dependency.condition IS NOT NULL
ORDER BY dependency.task_id
LIMIT ?2;

-- name: blocked_tasks
-- The blocked tasks, up to ?1, first those that wait for the lowest ids; and whether what they
-- wait for ended before ?2, or was removed. By task_engine_suspended_tasks_by_blocked and keys.
SELECT
    suspended.task_id,
    coalesce(
        (
            SELECT
                ended.ends_task IS NOT NULL
                AND ended.stopped_at < ?2
                AND NOT EXISTS (
                    SELECT 1
                    FROM task_engine_reopened_tasks AS reopened
                    WHERE reopened.task_id = ended.task_id AND reopened.attempt = ended.attempt
                )
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = suspended.blocked_on
            ORDER BY ended.attempt DESC
            LIMIT 1
        ),
        NOT EXISTS (
            SELECT 1 FROM task_engine_created_tasks AS created WHERE created.id = suspended.blocked_on
        )
    )
FROM task_engine_suspended_tasks AS suspended INDEXED BY task_engine_suspended_tasks_by_blocked
CROSS JOIN task_engine_waiting_tasks AS waiting ON waiting.task_id = suspended.task_id
WHERE suspended.blocked_on IS NOT NULL
    AND waiting.attempt = suspended.attempt + 1
    AND substr(waiting.queue, 1, 1) = char(30)
ORDER BY suspended.blocked_on
LIMIT ?1;

-- name: flows
-- A page of flows, the newest first. Walks the primary key backwards.
SELECT id, correlation_id, name, created_at
FROM task_engine_flows
WHERE id < ?1
ORDER BY id DESC
LIMIT ?2;

-- name: flow_of
-- The flow with a correlation id, as in flows. By its unique key.
SELECT id, correlation_id, name, created_at
FROM task_engine_flows
WHERE correlation_id = ?3 AND id < ?1
LIMIT ?2;

-- name: flow_states
-- Where the tasks of a flow are, with the parameters of flow_ids: the mark of the queue in
-- which it waits, how its newest attempt ended it, and whether it was not needed. By keys.
SELECT
    flow.id,
    waiting.task_id IS NOT NULL,
    coalesce(substr(waiting.queue, 1, 1) = char(30), 0),
    (
        SELECT ended.ends_task
        FROM task_engine_ended_executions AS ended
        WHERE ended.task_id = flow.id
        ORDER BY ended.attempt DESC
        LIMIT 1
    ),
    (
        SELECT coalesce(ended.error ->> '$.exception' = 'NotNeeded', 0)
        FROM task_engine_ended_executions AS ended
        WHERE ended.task_id = flow.id
        ORDER BY ended.attempt DESC
        LIMIT 1
    )
FROM (
    SELECT member.id
    FROM (
        SELECT created.id
        FROM task_engine_created_tasks AS created
        WHERE created.context <> '{}'
            AND created.context ->> '$.correlation_id' IS NOT NULL
            AND created.context ->> '$.correlation_id' = ?1
            AND created.id > ?2
        ORDER BY created.id
        LIMIT ?3
    ) AS member
    UNION ALL
    SELECT own.id
    FROM task_engine_created_tasks AS own
    WHERE own.id = ?4 AND own.id > ?2 AND own.context ->> '$.correlation_id' IS NULL
) AS flow
LEFT JOIN task_engine_waiting_tasks AS waiting ON waiting.task_id = flow.id
LIMIT ?3;
