-- A page of tasks: the ids from the base tables (the fastest way for each
-- status), the rest from the view by id. The marker is replaced by one of the
-- statements beside this one: $1 class or null, $2 id to start below, $3 limit.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error
FROM task_engine.tasks t
WHERE t.id = ANY (ARRAY(/* ids */)) ORDER BY t.id DESC
