-- A unique key belongs to a task that is there, and whose context says so.
SELECT 'the unique key ' || held.unique_key || ' of class ' || held.task_class
    || ' belongs to task ' || held.task_id
    || CASE WHEN created.id IS NULL THEN ', which is not there' ELSE ', which has another class or key' END
FROM task_engine_unique_tasks AS held
LEFT JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE created.id IS NULL
    OR created.task_class <> held.task_class
    OR created.context ->> '$.unique_key' IS NOT held.unique_key
