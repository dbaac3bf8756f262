-- As many rows as there are busy workers, each by its key.
SELECT h.task_id, h.attempt, h.instance_id, h.claimed_at, c.task_class, c.queue, c.priority,
  p.percent, p.message, p.reported_at
FROM task_engine.held_attempts h
JOIN task_engine.created_tasks c ON c.id = h.task_id
LEFT JOIN task_engine.execution_progress p ON p.task_id = h.task_id AND p.attempt = h.attempt
ORDER BY h.claimed_at, h.task_id
