SELECT a.id FROM task_engine.created_tasks a WHERE a.id >= $1 AND a.id < $2
