-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_created_tasks WHERE id = ?1
