INSERT INTO task_engine.cancel_requests (task_id, attempt, instance_id, requested_at)
SELECT task_id, attempt, instance_id, cancel_requested_at
FROM json_to_recordset($1::text::json)
  AS r(task_id bigint, attempt integer, instance_id bigint, cancel_requested_at timestamptz)
WHERE cancel_requested_at IS NOT NULL
