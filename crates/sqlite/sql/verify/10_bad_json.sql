-- Parameters and context are objects. The table checks it; a table that was
-- written with other rules may not have.
SELECT 'task ' || id || ' has ' || what || ' that are not a JSON object'
FROM (
    SELECT id, 'parameters' AS what, task_parameters AS text FROM task_engine_created_tasks
    UNION ALL
    SELECT id, 'contents of its context', context FROM task_engine_created_tasks
)
WHERE NOT CASE WHEN json_valid(text) THEN json_type(text) = 'object' ELSE 0 END
ORDER BY id
