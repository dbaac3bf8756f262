INSERT INTO task_engine.execution_progress (task_id, attempt, version, lines, percent, message, reported_at)
SELECT task_id, attempt, version, lines, percent, message, reported_at
FROM json_populate_recordset(NULL::task_engine.execution_progress, $1::text::json)
