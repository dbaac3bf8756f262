SELECT l.attempt, l.arrived_at, e.stopped_at AS ended_at, task_engine.readable(l.result) AS result, task_engine.readable(l.error) AS error
FROM task_engine.late_results l
JOIN task_engine.ended_executions e ON e.task_id = l.task_id AND e.attempt = l.attempt
WHERE l.task_id = $1 ORDER BY l.attempt
