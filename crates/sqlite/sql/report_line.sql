-- A line of a log. The key is the fence: sent again, it changes nothing. Nothing
-- is kept about a task that retention has removed. By keys alone.
INSERT INTO task_engine_execution_logs (task_id, attempt, line, logged_at, level, message)
SELECT id, ?2, ?3, ?4, ?5, ?6
FROM task_engine_created_tasks
WHERE id = ?1
ON CONFLICT (task_id, attempt, line) DO NOTHING
