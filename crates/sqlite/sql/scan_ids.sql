-- These, by their key.
SELECT id FROM task_engine_created_tasks WHERE id IN (/* ids */) AND id >= ?1 AND id < ?2
