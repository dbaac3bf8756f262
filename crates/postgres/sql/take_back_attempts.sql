-- Of the attempts in claims taken back, those that have not ended. A new
-- statement, so that it sees what was recorded until the claims were deleted.
SELECT a.task_id, a.attempt, c.task_class, task_engine.readable(c.context) AS context,
  EXISTS (SELECT FROM task_engine.cancel_requests r
          WHERE r.task_id = a.task_id AND r.attempt = a.attempt) AS cancel_requested
FROM unnest($1::bigint[], $2::integer[]) AS a(task_id, attempt)
JOIN task_engine.created_tasks c ON c.id = a.task_id
WHERE NOT EXISTS (
  SELECT FROM task_engine.ended_executions e
  WHERE e.task_id = a.task_id AND e.attempt = a.attempt)
