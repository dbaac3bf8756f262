-- As with executions.sql.
INSERT INTO task_engine.late_results (task_id, attempt, arrived_at, result, error)
SELECT l.task_id, l.attempt, l.arrived_at, (r.line->'result')::jsonb, (r.line->'error')::jsonb
FROM json_array_elements($1::text::json) AS r(line)
CROSS JOIN LATERAL json_populate_record(NULL::task_engine.late_results, r.line) AS l
