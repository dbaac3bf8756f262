-- An attempt either ends its task or says when the next one is due; and a task
-- has stopped if, and only if, its attempt has no error.
SELECT 'task ' || task_id || ', attempt ' || attempt || ' has no coherent ending: '
    || 'ends_task ' || coalesce(ends_task, 'null')
    || ', retry_at ' || coalesce(retry_at, 'null')
    || CASE WHEN error IS NULL THEN ', no error' ELSE ', an error' END
FROM task_engine_ended_executions
WHERE (ends_task IS NULL) = (retry_at IS NULL)
    OR (error IS NULL) <> (ends_task IS 'stopped')
ORDER BY task_id, attempt
