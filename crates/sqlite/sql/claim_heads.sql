-- The next tasks of one lane, due or not: the first one that is not due tells
-- when to come back. Reads task_engine_waiting_lanes from where it left off: of
-- tasks that are due together it reads again those that this claim has taken.
SELECT task_id, due_at
FROM task_engine_waiting_tasks
WHERE queue = ?1
    AND task_class = ?2
    AND priority = ?3
    AND (due_at, task_id) > (?4, ?5)
ORDER BY due_at, task_id
LIMIT ?6
