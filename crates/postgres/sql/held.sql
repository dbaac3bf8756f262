SELECT h.task_id, h.attempt, h.claimed_at, c.task_class
FROM task_engine.held_attempts h JOIN task_engine.created_tasks c ON c.id = h.task_id
WHERE h.instance_id = $1 ORDER BY h.task_id
