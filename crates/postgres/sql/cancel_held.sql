-- Asks the holders of running attempts, and wakes them.
WITH wanted AS (
  INSERT INTO task_engine.cancel_requests (task_id, attempt, instance_id, requested_at)
  SELECT h.task_id, h.attempt, h.instance_id, clock_timestamp()
  FROM task_engine.held_attempts h WHERE h.task_id = ANY ($1)
  ORDER BY h.task_id
  -- Once more is the same wish; the row is returned so that the answer is too.
  ON CONFLICT (task_id, attempt) DO UPDATE SET instance_id = EXCLUDED.instance_id
  RETURNING task_id
)
SELECT task_id, (SELECT pg_notify('task-engine-cancel', '') IS NOT NULL) FROM wanted
