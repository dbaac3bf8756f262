-- The newest lines of a task's log, the last of them first: a range of the
-- primary key, backwards.
SELECT attempt, line, logged_at, level, message
FROM task_engine_execution_logs
WHERE task_id = ?1 AND (attempt, line) > (?2, ?3) AND (attempt, line) < (?4, ?5)
ORDER BY attempt DESC, line DESC
LIMIT ?6
