-- Every schedule.
SELECT id, version, name, task_engine.readable(definition) AS definition, declared, overlap, anchor, paused_at, pause_reason, error,
  next_at, last_slot, last_task_id, created_at, updated_at
FROM task_engine.schedules ORDER BY id
