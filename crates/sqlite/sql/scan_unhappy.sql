-- Those that ended badly (/* status */), and that nobody has sent back since:
-- so nothing comes twice, not even together with those that wait or run. By the
-- index task_engine_unhappy_endings.
SELECT ended.task_id AS id
FROM task_engine_ended_executions AS ended
WHERE ended.ends_task <> 'stopped'
    AND ended.ends_task = '/* status */'
    AND ended.task_id >= ?1
    AND ended.task_id < ?2
    AND NOT EXISTS (
        SELECT 1
        FROM task_engine_ended_executions AS later
        WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
    )
    AND NOT EXISTS (
        SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
    )
    AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
