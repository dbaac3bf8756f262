-- A task is somewhere: it waits, is held, or its last attempt ended it.
SELECT 'task ' || created.id || ' is lost: it does not wait, no engine holds it, and no attempt has ended it'
FROM task_engine_created_tasks AS created
WHERE created.id NOT IN (SELECT task_id FROM task_engine_waiting_tasks)
    AND created.id NOT IN (SELECT task_id FROM task_engine_held_attempts)
    AND (
        SELECT last.ends_task
        FROM task_engine_ended_executions AS last
        WHERE last.task_id = created.id
        ORDER BY last.attempt DESC
        LIMIT 1
    ) IS NULL
ORDER BY created.id
