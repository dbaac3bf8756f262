-- Attempt numbers only grow: what is held is the newest.
SELECT 'task ' || held.task_id || ' is held as attempt ' || held.attempt
    || ', but attempt ' || max(ended.attempt) || ' has ended already'
FROM task_engine_held_attempts AS held
JOIN task_engine_ended_executions AS ended ON ended.task_id = held.task_id
GROUP BY held.task_id, held.attempt
HAVING held.attempt < max(ended.attempt)
ORDER BY held.task_id
