-- One task, where it waits, and how its last attempt ended. By keys alone; what
-- engines hold is read apart, once for a whole page.
SELECT
    created.task_class, created.queue, created.priority, created.created_at, created.scheduled_at,
    waiting.due_at, waiting.retry_number,
    ended.retry_number, ended.stopped_at, ended.error, ended.ends_task, ended.retry_at,
    instance.name,
    -- An attempt that no engine ever held was cancelled while it waited.
    (
        SELECT count(every.instance_id)
        FROM task_engine_ended_executions AS every
        WHERE every.task_id = created.id
    )
FROM task_engine_created_tasks AS created
LEFT JOIN task_engine_waiting_tasks AS waiting ON waiting.task_id = created.id
LEFT JOIN task_engine_ended_executions AS ended
    ON ended.task_id = created.id
    AND ended.attempt = (
        SELECT max(last.attempt) FROM task_engine_ended_executions AS last WHERE last.task_id = created.id
    )
LEFT JOIN task_engine_instances AS instance ON instance.id = ended.instance_id
WHERE created.id = ?1
