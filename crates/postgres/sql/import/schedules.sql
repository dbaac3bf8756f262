INSERT INTO task_engine.schedules (id, version, name, definition, declared, overlap, anchor, paused_at,
  pause_reason, error, next_at, last_slot, last_task_id, created_at, updated_at)
OVERRIDING SYSTEM VALUE
SELECT id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error,
  next_at, last_slot, last_task_id, created_at, updated_at
FROM json_populate_recordset(NULL::task_engine.schedules, $1::text::json)
