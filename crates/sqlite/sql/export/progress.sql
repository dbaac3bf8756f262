-- A range of the primary key.
SELECT attempt, version, lines, percent, message, reported_at
FROM task_engine_execution_progress
WHERE task_id = ?1
ORDER BY attempt
