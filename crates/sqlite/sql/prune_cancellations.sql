-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_cancellations WHERE task_id = ?1
