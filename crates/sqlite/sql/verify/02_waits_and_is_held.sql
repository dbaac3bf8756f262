-- A task is in one place only.
SELECT 'task ' || task_id || ' waits, and an engine holds its attempt ' || attempt
FROM task_engine_held_attempts
WHERE task_id IN (SELECT task_id FROM task_engine_waiting_tasks)
ORDER BY task_id
