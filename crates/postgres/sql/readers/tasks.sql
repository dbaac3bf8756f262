-- name: tasks
-- A page of tasks: $1 class or null, $2 the id to start below, $3 limit. The ids come
-- from the base tables (the fastest way for each status), the rest from the view.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked
FROM task_engine.tasks t
WHERE t.id = ANY (ARRAY(
  SELECT id FROM task_engine.created_tasks
  WHERE id < $2 AND ($1::text IS NULL OR task_class = $1) ORDER BY id DESC LIMIT $3
)) ORDER BY t.id DESC;

-- name: tasks_waiting
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked
FROM task_engine.tasks t
WHERE t.id = ANY (ARRAY(
  SELECT task_id FROM task_engine.waiting_tasks
  WHERE task_id < $2 AND ($1::text IS NULL OR task_class = $1) ORDER BY task_id DESC LIMIT $3
)) ORDER BY t.id DESC;

-- name: tasks_running
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked
FROM task_engine.tasks t
WHERE t.id = ANY (ARRAY(
  SELECT h.task_id FROM task_engine.held_attempts h
  JOIN task_engine.created_tasks c ON c.id = h.task_id
  WHERE h.task_id < $2 AND ($1::text IS NULL OR c.task_class = $1) ORDER BY h.task_id DESC LIMIT $3
)) ORDER BY t.id DESC;

-- name: tasks_stopped
-- The primary key is walked from its end.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked
FROM task_engine.tasks t
WHERE t.id = ANY (ARRAY(
  SELECT e.task_id FROM task_engine.ended_executions e
  JOIN task_engine.created_tasks c ON c.id = e.task_id
  WHERE e.ends_task = 'stopped' AND e.task_id < $2 AND ($1::text IS NULL OR c.task_class = $1)
    AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                    WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
    AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
    AND NOT EXISTS (SELECT FROM task_engine.claims k WHERE k.task_ids @> ARRAY[e.task_id]
                    AND k.attempts[array_position(k.task_ids, e.task_id)] > e.attempt)
  ORDER BY e.task_id DESC LIMIT $3
)) ORDER BY t.id DESC;

-- name: tasks_failed_or_cancelled
-- Of one of these two statuses ($4), by the index of both.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked
FROM task_engine.tasks t
WHERE t.id = ANY (ARRAY(
  SELECT e.task_id FROM task_engine.ended_executions e
  JOIN task_engine.created_tasks c ON c.id = e.task_id
  WHERE e.ends_task IN ('failed', 'cancelled')
    AND e.ends_task = $4::text::task_engine.task_status AND e.task_id < $2 AND ($1::text IS NULL OR c.task_class = $1)
    AND NOT EXISTS (SELECT FROM task_engine.ended_executions later
                    WHERE later.task_id = e.task_id AND later.attempt > e.attempt)
    AND NOT EXISTS (SELECT FROM task_engine.waiting_tasks w WHERE w.task_id = e.task_id)
    AND NOT EXISTS (SELECT FROM task_engine.claims k WHERE k.task_ids @> ARRAY[e.task_id]
                    AND k.attempts[array_position(k.task_ids, e.task_id)] > e.attempt)
  ORDER BY e.task_id DESC LIMIT $3
)) ORDER BY t.id DESC;

-- name: task
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked,
  task_engine.readable(t.task_parameters) AS task_parameters, task_engine.readable(c.context) AS context,
  EXISTS (SELECT FROM task_engine.cancel_requests r
          JOIN task_engine.held_attempts h ON h.task_id = r.task_id AND h.attempt = r.attempt
          WHERE r.task_id = t.id) AS cancel_requested
FROM task_engine.tasks t JOIN task_engine.created_tasks c ON c.id = t.id
WHERE t.id = $1;

-- name: executions
-- Every attempt of a task, also those that never began, with what it has said and
-- the outcome of a cancel request.
SELECT a.*, p.percent, p.message, p.reported_at, coalesce(p.lines, 0) AS log_lines,
  coalesce(c.requested_at, r.requested_at) AS cancel_requested_at, c.delivered_at, c.answer
FROM (
  SELECT e.attempt, e.retry_number,
    CASE WHEN e.error IS NULL THEN 'success'
      WHEN e.ends_task IS NULL AND e.error->>'exception' = 'Snoozed' THEN 'snoozed'
      WHEN e.claim_id IS NULL AND e.ends_task = 'cancelled' THEN 'cancelled'
      ELSE 'failure' END AS status,
    i.name AS instance, e.worker, e.started_at, e.stopped_at,
    task_engine.readable(e.result) AS result, task_engine.readable(e.error) AS error,
    e.ends_task::text, e.retry_at
  FROM task_engine.ended_executions e LEFT JOIN task_engine.instances i ON i.id = e.instance_id
  WHERE e.task_id = $1
  UNION ALL
  SELECT h.attempt, h.retry_number, 'running', i.name, NULL, h.claimed_at, NULL, NULL, NULL, NULL, NULL
  FROM task_engine.held_attempts h LEFT JOIN task_engine.instances i ON i.id = h.instance_id
  WHERE h.task_id = $1
) AS a
LEFT JOIN task_engine.execution_progress p ON p.task_id = $1 AND p.attempt = a.attempt
LEFT JOIN task_engine.cancellations c ON c.task_id = $1 AND c.attempt = a.attempt
LEFT JOIN task_engine.cancel_requests r ON r.task_id = $1 AND r.attempt = a.attempt
ORDER BY a.attempt;

-- name: late_results
SELECT l.attempt, l.arrived_at, e.stopped_at AS ended_at, task_engine.readable(l.result) AS result, task_engine.readable(l.error) AS error
FROM task_engine.late_results l
JOIN task_engine.ended_executions e ON e.task_id = l.task_id AND e.attempt = l.attempt
WHERE l.task_id = $1 ORDER BY l.attempt;
