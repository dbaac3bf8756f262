-- Whether retention has left the task. By its key.
SELECT 1 FROM task_engine_created_tasks WHERE id = ?1
