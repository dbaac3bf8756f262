-- As many rows as there are busy workers, each by its key.
SELECT
    held.task_id, held.attempt, held.instance_id, held.claimed_at,
    created.task_class, created.queue, created.priority,
    progress.percent, progress.message, progress.reported_at
FROM task_engine_held_attempts AS held
CROSS JOIN task_engine_created_tasks AS created ON created.id = held.task_id
LEFT JOIN task_engine_execution_progress AS progress
    ON progress.task_id = held.task_id AND progress.attempt = held.attempt
ORDER BY held.claimed_at, held.task_id
