-- Sends ended tasks back to wait and brings waiting ones forward. The tasks are
-- locked. A waiting row is replaced, never updated.
WITH asked AS MATERIALIZED (
  SELECT t.id, t.status::text, t.scheduled_at > clock_timestamp() AS later
  FROM task_engine.tasks t WHERE t.id = ANY ($1)
), gone AS (
  DELETE FROM task_engine.waiting_tasks w
  WHERE w.task_id = ANY (ARRAY(SELECT id FROM asked WHERE status = 'waiting' AND later))
  RETURNING w.task_id, w.priority, w.attempt, w.retry_number, w.queue, w.task_class
), again AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class)
  SELECT task_id, clock_timestamp(), priority, attempt, retry_number, queue, task_class FROM gone
  UNION ALL
  SELECT c.id, clock_timestamp(), c.priority, e.attempt + 1, 0, c.queue, c.task_class
  FROM asked a
  JOIN task_engine.created_tasks c ON c.id = a.id
  CROSS JOIN LATERAL (
    SELECT max(e.attempt) AS attempt FROM task_engine.ended_executions e WHERE e.task_id = a.id
  ) AS e
  WHERE a.status IN ('failed', 'cancelled')
  RETURNING task_id, task_class, queue, priority
)
SELECT a.id, a.status, a.later, again.task_id IS NOT NULL AS again,
  CASE WHEN again.task_id IS NOT NULL
    THEN task_engine.wake(again.task_class, again.queue, again.priority) END AS woken
FROM asked a LEFT JOIN again ON again.task_id = a.id
