INSERT INTO task_engine_execution_logs (task_id, attempt, line, logged_at, level, message)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
