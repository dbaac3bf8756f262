-- Renews a lease and tells the engine, in one round trip, what it should know.
-- Wishes to cancel are removed once their attempt has ended and the task does
-- not wait; those whose task went back to wait are returned as lingering.
WITH RECURSIVE beat AS (
  UPDATE task_engine.instances SET heartbeat_at = clock_timestamp()
  WHERE id = $1 AND stopped_at IS NULL AND lost_at IS NULL
  RETURNING id
), answered AS (
  DELETE FROM task_engine.cancel_requests r
  WHERE EXISTS (
      SELECT FROM task_engine.ended_executions e
      WHERE e.task_id = r.task_id AND e.attempt = r.attempt)
    AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = r.task_id)
), waiting_class AS (
  (SELECT queue, task_class, 1 AS place FROM task_engine.waiting_tasks
   ORDER BY queue, task_class LIMIT 1)
  UNION ALL
  SELECT head.queue, head.task_class, waiting_class.place + 1
  FROM waiting_class CROSS JOIN LATERAL (
    SELECT w.queue, w.task_class FROM task_engine.waiting_tasks w
    WHERE (w.queue, w.task_class) > (waiting_class.queue, waiting_class.task_class)
    ORDER BY w.queue, w.task_class LIMIT 1
  ) AS head
  WHERE waiting_class.place < 100
)
SELECT
  EXISTS (SELECT FROM beat) AS alive,
  ARRAY(SELECT id FROM task_engine.claims WHERE instance_id = $1) AS claims,
  ARRAY(SELECT task_id FROM task_engine.cancel_requests WHERE instance_id = $1
        ORDER BY task_id, attempt) AS cancel_tasks,
  ARRAY(SELECT attempt FROM task_engine.cancel_requests WHERE instance_id = $1
        ORDER BY task_id, attempt) AS cancel_attempts,
  ARRAY(SELECT r.task_id FROM task_engine.cancel_requests r
        JOIN task_engine.waiting_tasks w ON w.task_id = r.task_id AND w.attempt > r.attempt) AS lingering,
  ARRAY(SELECT id FROM task_engine.instances
        WHERE stopped_at IS NULL AND lost_at IS NULL AND id <> $1
          AND heartbeat_at + lease < clock_timestamp() ORDER BY id) AS expired,
  ARRAY(SELECT DISTINCT k.instance_id FROM task_engine.claims k
        JOIN task_engine.instances i ON i.id = k.instance_id
        WHERE i.stopped_at IS NOT NULL OR i.lost_at IS NOT NULL) AS orphaned,
  ARRAY(SELECT DISTINCT task_class FROM waiting_class ORDER BY task_class) AS waiting_classes
