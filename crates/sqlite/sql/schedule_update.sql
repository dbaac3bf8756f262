-- Writes a schedule that is still what the writer saw. By its id alone: a name
-- that is not UTF-8 is not known as it is.
UPDATE task_engine_schedules
SET version = version + 1,
    definition = ?2,
    declared = ?3,
    overlap = ?4,
    anchor = ?5,
    paused_at = ?6,
    pause_reason = ?7,
    error = ?8,
    next_at = ?9,
    updated_at = ?10
WHERE id = ?11 AND version = ?12
