-- Only an attempt that runs or has ended says something.
SELECT 'task ' || task_id || ', attempt ' || attempt || ' has said something, but is neither held nor ended'
FROM task_engine_execution_progress AS progress
WHERE NOT EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = progress.task_id AND ended.attempt = progress.attempt
)
AND NOT EXISTS (
    SELECT 1
    FROM task_engine_held_attempts AS held
    WHERE held.task_id = progress.task_id AND held.attempt = progress.attempt
)
ORDER BY task_id, attempt
