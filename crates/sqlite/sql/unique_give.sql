-- The key belongs to another task from now on. By its key.
UPDATE task_engine_unique_tasks SET task_id = ?3 WHERE task_class = ?1 AND unique_key = ?2
