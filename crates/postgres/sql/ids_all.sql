SELECT id FROM task_engine.created_tasks
WHERE id < $2 AND ($1::text IS NULL OR task_class = $1) ORDER BY id DESC LIMIT $3
