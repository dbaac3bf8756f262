-- Every attempt of a task, also those that never began, with what it has said and
-- what became of a wish to cancel it.
SELECT a.*, p.percent, p.message, p.reported_at, coalesce(p.lines, 0) AS log_lines,
  coalesce(c.requested_at, r.requested_at) AS cancel_requested_at, c.told_at, c.answer
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
ORDER BY a.attempt
