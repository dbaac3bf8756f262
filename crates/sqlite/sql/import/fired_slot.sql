INSERT INTO task_engine_fired_slots (schedule_id, slot, task_id, fired_at) VALUES (?1, ?2, ?3, ?4)
