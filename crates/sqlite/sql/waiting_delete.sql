-- Out of the queue. By its key.
DELETE FROM task_engine_waiting_tasks WHERE task_id = ?1
