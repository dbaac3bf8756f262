-- How the last attempt of a task ended. The end of a range of the primary key.
SELECT attempt, ends_task
FROM task_engine_ended_executions
WHERE task_id = ?1
ORDER BY attempt DESC
LIMIT 1
