-- Tasks that failed or were cancelled long enough ago, and for which this was
-- the last word: nobody has sent them back. Reads the index
-- task_engine_unhappy_endings.
SELECT ended.task_id
FROM task_engine_ended_executions AS ended
WHERE ended.ends_task <> 'stopped'
    AND ended.ends_task = ?1
    AND ended.stopped_at <= ?2
    AND NOT EXISTS (
        SELECT 1
        FROM task_engine_ended_executions AS later
        WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
    )
    AND NOT EXISTS (
        SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
    )
    AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
ORDER BY ended.task_id
LIMIT ?3
