-- Attempt numbers only grow: one that has been used would fall to the fence.
SELECT 'task ' || waiting.task_id || ' waits as attempt ' || waiting.attempt
    || ', but attempt ' || max(ended.attempt) || ' has ended already'
FROM task_engine_waiting_tasks AS waiting
JOIN task_engine_ended_executions AS ended ON ended.task_id = waiting.task_id
GROUP BY waiting.task_id
HAVING waiting.attempt <= max(ended.attempt)
ORDER BY waiting.task_id
