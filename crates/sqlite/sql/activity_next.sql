-- The first ?5 tasks of a lane that are due by ?4: read from the beginning of its
-- part of task_engine_waiting_lanes.
SELECT task_id, due_at
FROM task_engine_waiting_tasks
WHERE queue = ?1 AND task_class = ?2 AND priority = ?3 AND due_at <= ?4
ORDER BY due_at, task_id
LIMIT ?5
