-- A step of a search, newest first: ids from the base, narrowed by columns; the
-- rest from the view by id. $1 and $2: the range of ids, $3 the limit, $4 classes,
-- $5 queues, $6 and $7 the time of creation, $8 and $9 the time when an attempt
-- ended (each may be null), $10 only with an error, $11 with JSON.
-- What is asked of ended_executions is a scalar subquery, because the planner never
-- turns one into a scan of all history: it probes the key, a row at a time.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.correlation_id,
  last.started_at AS last_started_at, last.stopped_at AS last_stopped_at,
  CASE WHEN $11 THEN task_engine.readable(t.task_parameters) END AS task_parameters,
  CASE WHEN $11 THEN task_engine.readable(o.context) END AS context
FROM task_engine.tasks t JOIN task_engine.created_tasks o ON o.id = t.id
LEFT JOIN LATERAL (
  SELECT l.started_at, l.stopped_at FROM task_engine.ended_executions l
  WHERE l.task_id = t.id ORDER BY l.attempt DESC LIMIT 1
) AS last ON true
WHERE t.id = ANY (ARRAY(
  SELECT c.id FROM task_engine.created_tasks c
  WHERE /* within */
    AND ($4::text[] IS NULL OR c.task_class = ANY ($4))
    AND ($5::text[] IS NULL OR c.queue = ANY ($5))
    AND ($6::timestamptz IS NULL OR c.created_at >= $6)
    AND ($7::timestamptz IS NULL OR c.created_at <= $7)
    AND (($8::timestamptz IS NULL AND $9::timestamptz IS NULL) OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND ($8 IS NULL OR x.stopped_at >= $8) AND ($9 IS NULL OR x.stopped_at <= $9)
      LIMIT 1))
    AND (NOT $10::boolean OR (
      SELECT true FROM task_engine.ended_executions x
      WHERE x.task_id = c.id AND x.error IS NOT NULL LIMIT 1))
  ORDER BY c.id DESC LIMIT $3))
ORDER BY t.id DESC
