-- A range of the primary key.
SELECT attempt, arrived_at, result, error
FROM task_engine_late_results
WHERE task_id = ?1
ORDER BY attempt
