SELECT h.task_id FROM task_engine.held_attempts h
JOIN task_engine.created_tasks c ON c.id = h.task_id
WHERE h.task_id < $2 AND ($1::text IS NULL OR c.task_class = $1) ORDER BY h.task_id DESC LIMIT $3
