SELECT t.id, t.status::text FROM task_engine.tasks t WHERE t.id = ANY ($1)
