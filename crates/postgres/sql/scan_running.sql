SELECT h.task_id AS id FROM task_engine.held_attempts h WHERE h.task_id >= $1 AND h.task_id < $2
