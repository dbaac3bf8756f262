-- The next tasks of one lane, due or not: the first one that is not due tells
-- when to come back. Reads task_engine_waiting_lanes from where it left off: of
-- tasks that are due together it reads again those that this claim has taken.
-- What was asked comes by its key.
SELECT
    waiting.task_id, waiting.due_at, waiting.attempt, waiting.retry_number,
    created.task_parameters, created.context
FROM task_engine_waiting_tasks AS waiting
LEFT JOIN task_engine_created_tasks AS created ON created.id = waiting.task_id
WHERE waiting.queue = ?1
    AND waiting.task_class = ?2
    AND waiting.priority = ?3
    AND (waiting.due_at, waiting.task_id) > (?4, ?5)
ORDER BY waiting.due_at, waiting.task_id
LIMIT ?6
