-- Changes a task that waits; its row in created_tasks is locked. A waiting row is
-- replaced, never updated: a claim with an older snapshot must find it gone. If a
-- claim came first, it is gone for this statement, too, and nothing happens.
-- $2 parameters, $3 time, $4 wait in microseconds, $5 priority, $6 queue: what is
-- null stays.
WITH gone AS (
  DELETE FROM task_engine.waiting_tasks w WHERE w.task_id = $1
  RETURNING w.task_id, w.due_at, w.attempt, w.retry_number
), changed AS (
  UPDATE task_engine.created_tasks c SET
    task_parameters = coalesce($2::jsonb, c.task_parameters),
    priority = coalesce($5::integer, c.priority),
    queue = coalesce($6::text, c.queue),
    scheduled_at = coalesce(
      $3::timestamptz, clock_timestamp() + $4::bigint * interval '1 microsecond', c.scheduled_at)
  FROM gone g WHERE c.id = g.task_id
  RETURNING c.id, c.priority, c.queue, c.task_class, c.scheduled_at, g.due_at, g.attempt, g.retry_number
), again AS (
  INSERT INTO task_engine.waiting_tasks
    (task_id, due_at, priority, attempt, retry_number, queue, task_class)
  SELECT c.id,
    CASE WHEN $3::timestamptz IS NULL AND $4::bigint IS NULL THEN c.due_at ELSE c.scheduled_at END,
    c.priority, c.attempt, c.retry_number, c.queue, c.task_class
  FROM changed c
  RETURNING task_class, queue, priority, due_at
)
SELECT CASE WHEN due_at < clock_timestamp() + interval '15 seconds'
  THEN task_engine.wake(task_class, queue, priority) END
FROM again
