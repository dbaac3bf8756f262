INSERT INTO task_engine_schedule_events
    (schedule_id, kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
