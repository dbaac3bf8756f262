-- name: flow_ids
-- A page of the tasks of a flow, oldest first: those that have its correlation
-- id (?1), by the index task_engine_created_by_correlation, and the task that it
-- is the own id of (?4, or null), if that has none of its own. ?2 the id to
-- start above, ?3 the limit.
SELECT flow.id
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
ORDER BY flow.id
LIMIT ?3;

-- name: flow_task
-- The fields of a task that only a flow shows. By its key.
SELECT context, scheduled_at FROM task_engine_created_tasks WHERE id = ?1;

-- name: flow_executions
-- The ended attempts of one task, oldest first, without their results. A range
-- of the primary key.
SELECT
    ended.attempt, instance.name, ended.started_at, ended.stopped_at, ended.retry_at, ended.error,
    ended.ends_task, ended.instance_id IS NOT NULL
FROM task_engine_ended_executions AS ended
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE ended.task_id = ?1
ORDER BY ended.attempt;
