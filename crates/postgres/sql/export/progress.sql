SELECT task_id, attempt, version, lines, percent, message, reported_at
FROM task_engine.execution_progress WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt
