INSERT INTO task_engine_schedules (
    id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
    last_slot, last_task_id, created_at, updated_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
