SELECT i.id FROM task_engine.created_tasks i
WHERE i.id = ANY ('{/* ids */}'::bigint[]) AND i.id >= $1 AND i.id < $2
