-- name: flow
-- A page of the tasks of a flow, oldest first: those that have its correlation
-- id $1, by the index created_tasks_by_correlation, and the task that it is the
-- own id of ($4, or null), if that has none of its own. $2 the id to start
-- above, $3 the limit.
SELECT t.id, t.status::text, t.task_class, t.queue, t.priority, t.created_at, t.scheduled_at,
  t.updated_at, t.attempts, t.retry_number, t.instance, task_engine.readable(t.error) AS error,
  t.is_blocked,
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
ORDER BY t.id;

-- name: flow_executions
-- The attempts of many tasks ($1), without results and backtraces.
SELECT e.task_id, e.attempt,
  CASE WHEN e.error IS NULL THEN 'success'
    WHEN e.ends_task IS NULL AND e.error->>'exception' = 'Snoozed' THEN 'snoozed'
    WHEN e.claim_id IS NULL AND e.ends_task = 'cancelled' THEN 'cancelled'
    ELSE 'failure' END AS status,
  i.name AS instance, e.started_at, e.stopped_at, e.retry_at,
  CASE WHEN jsonb_typeof(e.error) = 'object' THEN task_engine.readable(e.error) - 'backtrace' ELSE task_engine.readable(e.error) END AS error
FROM task_engine.ended_executions e LEFT JOIN task_engine.instances i ON i.id = e.instance_id
WHERE e.task_id = ANY ($1)
UNION ALL
SELECT h.task_id, h.attempt, 'running', i.name, h.claimed_at, NULL, NULL, NULL
FROM task_engine.held_attempts h LEFT JOIN task_engine.instances i ON i.id = h.instance_id
WHERE h.task_id = ANY ($1)
ORDER BY task_id, attempt;
