-- name: existing_task
-- A task that others will depend on. By its key.
SELECT context FROM task_engine_created_tasks WHERE id = ?1;

-- name: await_task
-- Engines learn from the context that others wait for the task. It changes once. By the key.
UPDATE task_engine_created_tasks
SET context = json_set(context, '$.awaited', json('true'))
WHERE id = ?1 AND context ->> '$.awaited' IS NOT 1;

-- name: newest_end
-- The newest attempt of a task that has ended, its status if that ended it, and its error. The
-- end of a range of the primary key.
SELECT attempt, ends_task, error ->> '$.exception'
FROM task_engine_ended_executions
WHERE task_id = ?1
ORDER BY attempt DESC
LIMIT 1;

-- name: flow_insert
-- The first flow with a correlation id gives it its name.
INSERT INTO task_engine_flows (correlation_id, name, created_at)
VALUES (?1, ?2, ?3)
ON CONFLICT (correlation_id) DO NOTHING;

-- name: depend
-- A task depends on another one. By the key.
INSERT INTO task_engine_task_dependencies (task_id, depends_on, condition)
VALUES (?1, ?2, ?3)
ON CONFLICT (task_id, depends_on) DO NOTHING;

-- name: block
-- A task waits for those that it depends on. By the key.
INSERT INTO task_engine_suspended_tasks (task_id, attempt, signals, blocked_on, late_watch)
VALUES (?1, ?2, '[]', ?3, ?4)
ON CONFLICT (task_id) DO UPDATE
SET attempt = excluded.attempt, signals = excluded.signals, watching = NULL,
    blocked_on = excluded.blocked_on, late_watch = excluded.late_watch;

-- name: wait_blocked
-- The next attempt of a task waits where no claim sees it. By the key.
INSERT INTO task_engine_waiting_tasks
    (task_id, queue, task_class, priority, due_at, attempt, retry_number)
SELECT id, char(30) || queue, task_class, priority, coalesce(?2, scheduled_at), ?3, ?4
FROM task_engine_created_tasks
WHERE id = ?1
ON CONFLICT (task_id) DO NOTHING;

-- name: blocked
-- A blocked task. By its key.
SELECT task_id, attempt, blocked_on
FROM task_engine_suspended_tasks
WHERE task_id = ?1 AND blocked_on IS NOT NULL;

-- name: blocked_on
-- The tasks that wait for this one next. By task_engine_suspended_tasks_by_blocked.
SELECT task_id, attempt, blocked_on
FROM task_engine_suspended_tasks
WHERE blocked_on = ?1
ORDER BY task_id;

-- name: blocked_needing
-- The blocked tasks that need the success of this one. By
-- task_engine_task_dependencies_by_child and keys.
SELECT suspended.task_id, suspended.attempt, suspended.blocked_on
FROM task_engine_task_dependencies AS dependency
    INDEXED BY task_engine_task_dependencies_by_child
CROSS JOIN task_engine_suspended_tasks AS suspended ON suspended.task_id = dependency.task_id
WHERE dependency.depends_on = ?1
    AND dependency.condition = 'success'
    AND suspended.blocked_on IS NOT NULL
ORDER BY dependency.task_id;

-- name: blocked_late
-- The blocked tasks that depend on one whose engine does not know it. By
-- task_engine_suspended_tasks_late.
SELECT task_id, attempt, blocked_on
FROM task_engine_suspended_tasks
WHERE late_watch = 1
ORDER BY task_id
LIMIT ?1;

-- name: block_on
-- A blocked task waits for this one next. By the key.
UPDATE task_engine_suspended_tasks SET blocked_on = ?2 WHERE task_id = ?1;

-- name: block_on_reopened
-- Blocked tasks that depend on a task that has not ended any more wait for it, if it comes
-- before the one that they wait for. By task_engine_task_dependencies_by_child and the key.
UPDATE task_engine_suspended_tasks
SET blocked_on = ?1
WHERE blocked_on > ?1
    AND task_id IN (
        SELECT dependency.task_id
        FROM task_engine_task_dependencies AS dependency
        WHERE dependency.depends_on = ?1 AND dependency.condition IS NOT NULL
    );

-- name: next_dependency
-- The first dependency from an id on that matters: one that is open, or that was needed and
-- has not succeeded. Reads the primary key from there, and stops at the first.
SELECT depends_on, state = 'open'
FROM task_engine_dependency_states
WHERE task_id = ?1
    AND depends_on >= ?2
    AND CASE state WHEN 'stopped' THEN 0 WHEN 'open' THEN 1 ELSE condition = 'success' END
ORDER BY depends_on
LIMIT 1;

-- name: failed_dependency
-- Whether a dependency that was needed has not succeeded, among the next ?3 from an id on. A
-- range of the primary key.
SELECT depends_on
FROM (
    SELECT depends_on, condition, state
    FROM task_engine_dependency_states
    WHERE task_id = ?1 AND depends_on >= ?2
    ORDER BY depends_on
    LIMIT ?3
)
WHERE condition = 'success' AND CASE state WHEN 'open' THEN 0 WHEN 'stopped' THEN 0 ELSE 1 END
LIMIT 1;

-- name: last_dependency
-- The highest id that a task depends on. The end of a range of the primary key.
SELECT max(depends_on) FROM task_engine_task_dependencies WHERE task_id = ?1;

-- name: dependency_states
-- All that a task depends on. A range of the primary key.
SELECT depends_on, condition, state
FROM task_engine_dependency_states
WHERE task_id = ?1
ORDER BY depends_on;

-- name: name_in_flow
-- The name of a task in its flow. By its key.
SELECT context ->> '$.flow_task'
FROM task_engine_created_tasks
WHERE id = ?1 AND json_type(context, '$.flow_task') = 'text';

-- name: has_dependencies
-- Whether a task depends on others. A range of the primary key.
SELECT 1 FROM task_engine_task_dependencies WHERE task_id = ?1 AND condition IS NOT NULL;

-- name: has_dependents
-- Whether others depend on a task. By task_engine_task_dependencies_by_child.
SELECT 1
FROM task_engine_task_dependencies INDEXED BY task_engine_task_dependencies_by_child
WHERE depends_on = ?1 AND condition IS NOT NULL;

-- name: reopen
-- This end of a task no longer counts for those that depend on it. By the key.
INSERT INTO task_engine_reopened_tasks (task_id, attempt)
VALUES (?1, ?2)
ON CONFLICT (task_id, attempt) DO NOTHING;

-- name: needing
-- The tasks that need the success of this one. By task_engine_task_dependencies_by_child.
SELECT task_id
FROM task_engine_task_dependencies INDEXED BY task_engine_task_dependencies_by_child
WHERE depends_on = ?1 AND condition = 'success'
ORDER BY task_id;

-- name: dependents_to_extend
-- The tasks that depend on this one and wait for it, and those that were cancelled because one
-- that they need has not succeeded, which a retry of that one restores. By
-- task_engine_task_dependencies_by_child and keys.
SELECT
    dependency.task_id,
    dependency.condition,
    suspended.blocked_on IS NOT NULL
FROM task_engine_task_dependencies AS dependency
    INDEXED BY task_engine_task_dependencies_by_child
LEFT JOIN task_engine_suspended_tasks AS suspended ON suspended.task_id = dependency.task_id
WHERE dependency.depends_on = ?1
    AND dependency.condition IS NOT NULL
    AND (
        suspended.blocked_on IS NOT NULL
        OR (
            SELECT ended.ends_task = 'cancelled' AND ended.error ->> '$.exception' = 'DependencyFailed'
            FROM task_engine_ended_executions AS ended
            WHERE ended.task_id = dependency.task_id
            ORDER BY ended.attempt DESC
            LIMIT 1
        )
    )
ORDER BY dependency.task_id;

-- name: needed_by
-- The tasks that depend on this one and have not succeeded. By
-- task_engine_task_dependencies_by_child and keys.
SELECT dependency.task_id
FROM task_engine_task_dependencies AS dependency
    INDEXED BY task_engine_task_dependencies_by_child
WHERE dependency.depends_on = ?1
    AND dependency.condition IS NOT NULL
    AND EXISTS (
        SELECT 1 FROM task_engine_created_tasks AS created WHERE created.id = dependency.task_id
    )
    AND (
        SELECT ended.ends_task
        FROM task_engine_ended_executions AS ended
        WHERE ended.task_id = dependency.task_id
        ORDER BY ended.attempt DESC
        LIMIT 1
    ) IS NOT 'stopped'
ORDER BY dependency.task_id;

-- name: removable_flows
-- Of the next ?2 flows from an id on, those whose tasks have all been removed. By
-- task_engine_created_by_correlation, and the key of the task whose own id is the name of the
-- flow.
SELECT flow.id, NOT EXISTS (
    SELECT 1
    FROM task_engine_created_tasks AS created
    WHERE created.context <> '{}'
        AND created.context ->> '$.correlation_id' IS NOT NULL
        -- Without the affinity of the column, for which the index could not be used.
        AND created.context ->> '$.correlation_id' = +flow.correlation_id
)
AND NOT EXISTS (
    SELECT 1
    FROM task_engine_created_tasks AS own
    WHERE own.id = CAST(flow.correlation_id AS INTEGER)
        AND CAST(own.id AS TEXT) = flow.correlation_id
        AND own.context ->> '$.correlation_id' IS NULL
)
FROM task_engine_flows AS flow
WHERE flow.id >= ?1
ORDER BY flow.id
LIMIT ?2;

-- name: flow_delete
-- By the key.
DELETE FROM task_engine_flows WHERE id = ?1;

-- name: newest_flow
-- The end of the table.
SELECT coalesce(max(id), 0) FROM task_engine_flows;
