-- A step of a search, newest first: ids from the base, narrowed by columns; the
-- rest from the view by id. $1 and $2: the range of ids, $3 the limit, $4 classes,
-- $5 queues, $6 and $7 the time of creation (each may be null), $8 with JSON.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.correlation_id,
  CASE WHEN $8 THEN task_engine.readable(t.task_parameters) END AS task_parameters,
  CASE WHEN $8 THEN task_engine.readable(o.context) END AS context
FROM task_engine.tasks t JOIN task_engine.created_tasks o ON o.id = t.id
WHERE t.id = ANY (ARRAY(
  SELECT c.id FROM task_engine.created_tasks c
  WHERE c.id = ANY (ARRAY(SELECT b.id FROM (/* base */) AS b))
    AND ($4::text[] IS NULL OR c.task_class = ANY ($4))
    AND ($5::text[] IS NULL OR c.queue = ANY ($5))
    AND ($6::timestamptz IS NULL OR c.created_at >= $6)
    AND ($7::timestamptz IS NULL OR c.created_at <= $7)
  ORDER BY c.id DESC LIMIT $3))
ORDER BY t.id DESC
