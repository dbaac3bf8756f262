-- What did its work does not run again. A failed or cancelled task may: somebody
-- has sent it back.
SELECT 'task ' || ended.task_id || ' had stopped with attempt ' || ended.attempt || ', and went on after that'
FROM task_engine_ended_executions AS ended
WHERE ended.ends_task = 'stopped'
    AND (
        EXISTS (
            SELECT 1
            FROM task_engine_ended_executions AS later
            WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
        )
        OR ended.task_id IN (SELECT task_id FROM task_engine_waiting_tasks)
        OR ended.task_id IN (SELECT task_id FROM task_engine_held_attempts)
    )
ORDER BY ended.task_id
