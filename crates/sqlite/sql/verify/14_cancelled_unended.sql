-- A wish is over when its attempt is.
SELECT 'task ' || task_id || ', attempt ' || attempt || ' was to be cancelled, but has not ended'
FROM task_engine_cancellations AS cancellation
WHERE NOT EXISTS (
    SELECT 1
    FROM task_engine_ended_executions AS ended
    WHERE ended.task_id = cancellation.task_id AND ended.attempt = cancellation.attempt
)
ORDER BY task_id, attempt
