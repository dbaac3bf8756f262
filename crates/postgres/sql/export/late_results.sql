SELECT task_id, attempt, arrived_at, result, error
FROM task_engine.late_results WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, attempt
