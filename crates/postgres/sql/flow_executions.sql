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
ORDER BY task_id, attempt
