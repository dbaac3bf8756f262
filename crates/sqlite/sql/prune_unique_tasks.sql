-- Retention: by key, in the transaction that chose the task, before its context
-- is gone. A key that has gone over to another task stays.
DELETE FROM task_engine_unique_tasks
WHERE task_id = ?1
    AND (task_class, unique_key) = (
        SELECT task_class, context ->> '$.unique_key'
        FROM task_engine_created_tasks
        WHERE id = ?1
    )
