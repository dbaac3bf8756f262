-- Schedules that are due, by the index on next_at, which has no paused or broken
-- ones. The caller reads on past those that wait for a task to end.
SELECT
    id, version, name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
    last_slot, last_task_id, created_at, updated_at
FROM task_engine_schedules
WHERE next_at <= ?1
ORDER BY next_at
