-- Who has a key, and since when it is there. By keys.
SELECT created.id, created.created_at
FROM task_engine_unique_tasks AS held
JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE held.task_class = ?1 AND held.unique_key = ?2
