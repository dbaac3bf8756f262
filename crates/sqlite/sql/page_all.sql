-- A page of all tasks. Walks the primary key backwards.
SELECT id
FROM task_engine_created_tasks
WHERE id < ?1 AND (?2 IS NULL OR task_class = ?2)
ORDER BY id DESC
LIMIT ?3
