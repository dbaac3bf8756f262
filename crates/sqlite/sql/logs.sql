-- Lines of a task's log: a range of the primary key.
SELECT attempt, line, logged_at, level, message
FROM task_engine_execution_logs
WHERE task_id = ?1 AND (attempt, line) > (?2, ?3) AND (attempt, line) < (?4, ?5)
ORDER BY attempt, line
LIMIT ?6
