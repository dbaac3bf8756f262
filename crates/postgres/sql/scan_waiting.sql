SELECT w.task_id AS id FROM task_engine.waiting_tasks w WHERE w.task_id >= $1 AND w.task_id < $2
