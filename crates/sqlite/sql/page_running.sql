-- A page of running tasks, from the claims.
SELECT DISTINCT held.task_id
FROM task_engine_held_attempts AS held
JOIN task_engine_created_tasks AS created ON created.id = held.task_id
WHERE held.task_id < ?1 AND (?2 IS NULL OR created.task_class = ?2)
ORDER BY held.task_id DESC
LIMIT ?3
