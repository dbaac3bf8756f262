INSERT INTO task_engine.execution_logs (task_id, attempt, line, logged_at, level, message)
SELECT task_id, attempt, line, logged_at, level, message
FROM json_populate_recordset(NULL::task_engine.execution_logs, $1::text::json)
