-- The newest task that has committed.
SELECT coalesce(max(id), 0) FROM task_engine_created_tasks
