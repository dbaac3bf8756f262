-- What one schedule has fired. A range of the primary key.
SELECT slot, task_id, fired_at FROM task_engine_fired_slots WHERE schedule_id = ?1 ORDER BY slot
