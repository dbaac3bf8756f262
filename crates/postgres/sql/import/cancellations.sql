INSERT INTO task_engine.cancellations (task_id, attempt, requested_at, told_at, answer)
SELECT task_id, attempt, requested_at, told_at, answer
FROM json_populate_recordset(NULL::task_engine.cancellations, $1::text::json)
