-- Wishes that are over, also those that no heartbeat has moved yet.
SELECT task_id, attempt, requested_at, told_at, answer
FROM task_engine.cancellations WHERE task_id BETWEEN $1 AND $2
UNION ALL
SELECT r.task_id, r.attempt, r.requested_at, NULL, NULL
FROM task_engine.cancel_requests r
JOIN task_engine.ended_executions e ON e.task_id = r.task_id AND e.attempt = r.attempt
WHERE r.task_id BETWEEN $1 AND $2 AND NOT EXISTS (
  SELECT FROM task_engine.cancellations c WHERE c.task_id = r.task_id AND c.attempt = r.attempt)
ORDER BY task_id, attempt
