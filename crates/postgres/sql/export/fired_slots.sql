SELECT slot, task_id, fired_at
FROM task_engine.fired_slots WHERE schedule_id = $1 ORDER BY slot
