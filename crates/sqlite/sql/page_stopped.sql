-- A page of tasks that did their work: most are, so it walks the primary key
-- backwards. What has stopped never runs again, so it need not look further.
SELECT ended.task_id
FROM task_engine_ended_executions AS ended
CROSS JOIN task_engine_created_tasks AS created ON created.id = ended.task_id
WHERE ended.task_id < ?1
    AND ended.ends_task = 'stopped'
    AND (?2 IS NULL OR created.task_class = ?2)
ORDER BY ended.task_id DESC
LIMIT ?3
