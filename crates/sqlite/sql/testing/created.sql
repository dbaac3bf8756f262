-- The tasks of one class after an id, in the order of their creation. Reads the
-- table; tests have small ones.
SELECT id, task_class, task_parameters, context, queue, priority, scheduled_at, created_at
FROM task_engine_created_tasks
WHERE id > ?1 AND task_class = ?2
ORDER BY id
