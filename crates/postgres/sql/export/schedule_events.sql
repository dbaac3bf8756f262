SELECT kind, first_slot, last_slot, slots, task_id, requested_by, recorded_at
FROM task_engine.schedule_events WHERE schedule_id = $1 ORDER BY id
