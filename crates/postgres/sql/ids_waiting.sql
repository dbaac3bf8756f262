SELECT task_id FROM task_engine.waiting_tasks
WHERE task_id < $2 AND ($1::text IS NULL OR task_class = $1) ORDER BY task_id DESC LIMIT $3
