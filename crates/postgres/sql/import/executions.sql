-- Claim 0 is nobody's, so whoever still sends a result is late. An attempt that
-- no engine held was cancelled while it waited, and has no claim. Results are
-- taken from the row itself: a record would make SQL's null of JSON's.
INSERT INTO task_engine.ended_executions (task_id, attempt, retry_number, claim_id, instance_id,
  started_at, stopped_at, retry_at, worker, ends_task, result, error)
SELECT e.task_id, e.attempt, e.retry_number, CASE WHEN e.instance_id IS NOT NULL THEN 0 END,
  e.instance_id, e.started_at, e.stopped_at, e.retry_at, e.worker, e.ends_task,
  (r.line->'result')::jsonb, (r.line->'error')::jsonb
FROM json_array_elements($1::text::json) AS r(line)
CROSS JOIN LATERAL json_populate_record(NULL::task_engine.ended_executions, r.line) AS e
