-- One attempt at a time.
SELECT 'task ' || task_id || ' is held ' || count(*) || ' times: attempts ' || group_concat(attempt, ', ')
FROM task_engine_held_attempts
GROUP BY task_id
HAVING count(*) > 1
ORDER BY task_id
