-- Retention removes a task whole.
SELECT DISTINCT 'task ' || task_id || ' has ended attempts, but was never created'
FROM task_engine_ended_executions
WHERE task_id NOT IN (SELECT id FROM task_engine_created_tasks)
ORDER BY task_id
