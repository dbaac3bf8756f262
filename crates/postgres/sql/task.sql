SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  task_engine.readable(t.task_parameters) AS task_parameters, task_engine.readable(c.context) AS context,
  EXISTS (SELECT FROM task_engine.cancel_requests r
          JOIN task_engine.held_attempts h ON h.task_id = r.task_id AND h.attempt = r.attempt
          WHERE r.task_id = t.id) AS cancel_requested
FROM task_engine.tasks t JOIN task_engine.created_tasks c ON c.id = t.id
WHERE t.id = $1
