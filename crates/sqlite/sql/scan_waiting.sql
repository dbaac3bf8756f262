-- Those that wait, by their key.
SELECT task_id AS id FROM task_engine_waiting_tasks WHERE task_id >= ?1 AND task_id < ?2
