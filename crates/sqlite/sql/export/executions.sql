-- The ended attempts of one task. A range of the primary key.
SELECT
    attempt, retry_number, instance_id, worker, started_at, stopped_at, retry_at, ends_task,
    result, error
FROM task_engine_ended_executions
WHERE task_id = ?1
ORDER BY attempt
