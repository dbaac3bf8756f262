-- Takes one task out of the queue. By its key.
DELETE FROM task_engine_waiting_tasks
WHERE task_id = ?1
RETURNING queue, task_class, priority, due_at, attempt, retry_number
