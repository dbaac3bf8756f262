-- Asks the holders of running attempts, and wakes them if the wish is new: a
-- wish that is repeated at every heartbeat must not wake everybody each time.
WITH wanted AS (
  INSERT INTO task_engine.cancel_requests (task_id, attempt, instance_id, requested_at)
  SELECT h.task_id, h.attempt, h.instance_id, clock_timestamp()
  FROM task_engine.held_attempts h WHERE h.task_id = ANY ($1)
  ORDER BY h.task_id
  -- Once more is the same wish; the row is returned so that the answer is too.
  ON CONFLICT (task_id, attempt) DO UPDATE SET instance_id = EXCLUDED.instance_id
  RETURNING task_id, xmax = 0 AS is_new
)
SELECT task_id, CASE WHEN is_new THEN pg_notify('task-engine-cancel', '') IS NOT NULL END
FROM wanted
