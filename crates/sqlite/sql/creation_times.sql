-- The nearest task at or below an id: one search of the primary key.
SELECT id, created_at
FROM task_engine_created_tasks
WHERE id <= ?1
ORDER BY id DESC
LIMIT 1
