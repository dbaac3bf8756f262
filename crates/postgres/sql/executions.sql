-- Every attempt of a task, also those that never began.
SELECT e.attempt, e.retry_number, CASE WHEN e.error IS NULL THEN 'success' ELSE 'failure' END AS status,
  i.name AS instance, e.worker, e.started_at, e.stopped_at, e.result, e.error,
  e.ends_task::text, e.retry_at
FROM task_engine.ended_executions e LEFT JOIN task_engine.instances i ON i.id = e.instance_id
WHERE e.task_id = $1
UNION ALL
SELECT h.attempt, h.retry_number, 'running', i.name, NULL, h.claimed_at, NULL, NULL, NULL, NULL, NULL
FROM task_engine.held_attempts h LEFT JOIN task_engine.instances i ON i.id = h.instance_id
WHERE h.task_id = $1
ORDER BY attempt
