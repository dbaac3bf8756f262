-- Of the last failed tasks, those of the last hour, by class: by
-- task_engine_unhappy_endings.
SELECT created.task_class, count(*), max(last.task_id)
FROM (
    SELECT task_id, stopped_at FROM task_engine_ended_executions
    WHERE ends_task = 'failed' AND ends_task <> 'stopped'
    ORDER BY task_id DESC
    LIMIT ?2
) AS last
CROSS JOIN task_engine_created_tasks AS created ON created.id = last.task_id
WHERE last.stopped_at >= ?1
GROUP BY created.task_class
