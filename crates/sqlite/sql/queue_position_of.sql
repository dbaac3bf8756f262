-- A task that waits. By its key.
SELECT priority, due_at FROM task_engine_waiting_tasks WHERE task_id = ?1
