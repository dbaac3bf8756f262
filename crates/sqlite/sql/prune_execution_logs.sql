-- Retention: by key, in the transaction that chose the task.
DELETE FROM task_engine_execution_logs WHERE task_id = ?1
