-- A key that a task here has stays with it.
INSERT INTO task_engine_unique_tasks (task_class, unique_key, task_id) VALUES (?1, ?2, ?3)
ON CONFLICT DO NOTHING
