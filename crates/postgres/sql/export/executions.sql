-- The ended attempts of a page of tasks. A range of the primary key, as all of these.
SELECT task_id, attempt, retry_number, instance_id, worker, started_at, stopped_at, retry_at,
  ends_task::text, task_engine.readable(result) AS result, task_engine.readable(error) AS error
FROM task_engine.ended_executions WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt
