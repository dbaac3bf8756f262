-- As many rows as there are busy workers, each by its key.
SELECT c.queue, count(*) AS running
FROM task_engine.held_attempts h JOIN task_engine.created_tasks c ON c.id = h.task_id
GROUP BY c.queue
