-- Moves a schedule on to the next slot.
UPDATE task_engine_schedules
SET version = version + 1,
    next_at = ?2,
    last_slot = coalesce(?3, last_slot),
    last_task_id = coalesce(?4, last_task_id)
WHERE id = ?1
