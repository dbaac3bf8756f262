-- The place of one task in the queue. By its key.
SELECT due_at, attempt, retry_number FROM task_engine_waiting_tasks WHERE task_id = ?1
