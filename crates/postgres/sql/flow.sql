-- A page of the tasks of a flow, oldest first: those that have its correlation
-- id $1, by the index created_tasks_by_correlation, and the task that it is the
-- own id of ($4, or null), if that has none of its own. $2 the id to start
-- above, $3 the limit.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  task_engine.readable(c.context) AS context, c.scheduled_at AS due_at
FROM task_engine.tasks t JOIN task_engine.created_tasks c ON c.id = t.id
WHERE t.id = ANY (ARRAY(
  SELECT f.id FROM (
    (SELECT m.id FROM task_engine.created_tasks m
     WHERE m.context->>'correlation_id' = $1 AND m.id > $2
     ORDER BY m.context->>'correlation_id', m.id LIMIT $3)
    UNION ALL
    SELECT o.id FROM task_engine.created_tasks o
    WHERE o.id = $4 AND o.id > $2 AND (o.context->>'correlation_id') IS NULL
  ) AS f ORDER BY f.id LIMIT $3))
ORDER BY t.id
