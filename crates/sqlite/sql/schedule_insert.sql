-- A new schedule. Nothing if the name is taken.
INSERT INTO task_engine_schedules
    (name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at, created_at, updated_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)
ON CONFLICT (name) DO NOTHING
