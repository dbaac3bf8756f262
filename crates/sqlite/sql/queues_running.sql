-- As many as there are busy workers, each by its key.
SELECT created.queue, count(*)
FROM task_engine_held_attempts AS held
CROSS JOIN task_engine_created_tasks AS created ON created.id = held.task_id
GROUP BY created.queue
