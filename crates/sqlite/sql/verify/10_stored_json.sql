-- Every JSON value that is stored with a task: which task, which value, its text,
-- and whether it is an object.
SELECT id, 'the parameters' AS what, task_parameters AS stored, 1 AS is_object
FROM task_engine_created_tasks
UNION ALL
SELECT id, 'the context', context, 1 FROM task_engine_created_tasks
UNION ALL
SELECT task_id, 'the result of attempt ' || attempt, result, 0
FROM task_engine_ended_executions WHERE result IS NOT NULL
UNION ALL
SELECT task_id, 'the error of attempt ' || attempt, error, 0
FROM task_engine_ended_executions WHERE error IS NOT NULL
UNION ALL
SELECT task_id, 'the late result of attempt ' || attempt, coalesce(result, error), 0
FROM task_engine_late_results WHERE coalesce(result, error) IS NOT NULL
