-- Every task with where it waits, in the order of ids: a walk along the keys.
SELECT
    created.id, created.task_class, created.queue, created.priority, created.created_at,
    created.scheduled_at, created.task_parameters, created.context,
    waiting.attempt, waiting.retry_number, waiting.due_at,
    EXISTS (
        SELECT 1 FROM task_engine_unique_tasks AS own
        WHERE own.task_class = created.task_class
            AND own.unique_key = created.context ->> '$.unique_key' AND own.task_id = created.id
    )
FROM task_engine_created_tasks AS created
LEFT JOIN task_engine_waiting_tasks AS waiting ON waiting.task_id = created.id
ORDER BY created.id
