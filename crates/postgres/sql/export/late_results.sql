SELECT task_id, attempt, arrived_at, task_engine.readable(result) AS result, task_engine.readable(error) AS error
FROM task_engine.late_results WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt
