DELETE FROM task_engine_schedule_events WHERE schedule_id = ?1
