-- A page of waiting tasks. Walks the primary key of the queue backwards.
SELECT task_id
FROM task_engine_waiting_tasks
WHERE task_id < ?1 AND (?2 IS NULL OR task_class = ?2)
ORDER BY task_id DESC
LIMIT ?3
