-- A page of tasks that failed, or that were cancelled (?4), and that nobody has
-- sent back since. Walks the index task_engine_unhappy_endings backwards.
SELECT ended.task_id
FROM task_engine_ended_executions AS ended
CROSS JOIN task_engine_created_tasks AS created ON created.id = ended.task_id
WHERE ended.ends_task <> 'stopped'
    AND ended.ends_task = ?4
    AND ended.task_id < ?1
    AND (?2 IS NULL OR created.task_class = ?2)
    AND NOT EXISTS (
        SELECT 1
        FROM task_engine_ended_executions AS later
        WHERE later.task_id = ended.task_id AND later.attempt > ended.attempt
    )
    AND NOT EXISTS (
        SELECT 1 FROM task_engine_waiting_tasks AS waiting WHERE waiting.task_id = ended.task_id
    )
    AND ended.task_id NOT IN (SELECT task_id FROM task_engine_held_attempts)
ORDER BY ended.task_id DESC
LIMIT ?3
