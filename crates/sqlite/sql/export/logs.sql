-- A range of the primary key.
SELECT attempt, line, logged_at, level, message
FROM task_engine_execution_logs
WHERE task_id = ?1
ORDER BY attempt, line
