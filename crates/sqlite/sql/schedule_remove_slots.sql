DELETE FROM task_engine_fired_slots WHERE schedule_id = ?1
