-- Of the last failed tasks, those of the last hour: by task_engine_unhappy_endings.
SELECT count(*), coalesce(sum(stopped_at >= ?1), 0)
FROM (
    SELECT stopped_at FROM task_engine_ended_executions
    WHERE ends_task = 'failed' AND ends_task <> 'stopped'
    ORDER BY task_id DESC
    LIMIT ?2
)
