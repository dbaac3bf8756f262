-- Claims of their own: their holders are gone, and recovery takes them back.
INSERT INTO task_engine.claims (id, instance_id, claimed_at, task_ids, attempts, retry_numbers)
SELECT (r.instance_id << 40) + r.task_id % (1::bigint << 40), r.instance_id, r.claimed_at,
  ARRAY[r.task_id], ARRAY[r.attempt], ARRAY[r.retry_number]
FROM json_to_recordset($1::text::json) AS r(task_id bigint, instance_id bigint,
  claimed_at timestamptz, attempt integer, retry_number integer)
