-- Creation is whole: nothing waits that was not created.
SELECT 'task ' || task_id || ' waits, but was never created'
FROM task_engine_waiting_tasks
WHERE task_id NOT IN (SELECT id FROM task_engine_created_tasks)
ORDER BY task_id
