-- When the last attempt of a task began and ended. The end of a range of the
-- primary key.
SELECT started_at, stopped_at
FROM task_engine_ended_executions
WHERE task_id = ?1
ORDER BY attempt DESC
LIMIT 1
