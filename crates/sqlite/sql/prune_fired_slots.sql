DELETE FROM task_engine_fired_slots WHERE task_id = ?1
