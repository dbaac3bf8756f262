SELECT task_id, attempt, line, logged_at, level, message
FROM task_engine.execution_logs WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt, line
