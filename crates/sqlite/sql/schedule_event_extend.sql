-- A range of skipped slots that goes on stays one row: the newest event is of the
-- same kind, and nothing has fired since.
UPDATE task_engine_schedule_events
SET last_slot = ?3, slots = slots + ?4, recorded_at = ?5
WHERE id = (
    SELECT id FROM task_engine_schedule_events WHERE schedule_id = ?1 ORDER BY id DESC LIMIT 1
) AND kind = ?2 AND last_slot > coalesce(
    (SELECT last_slot FROM task_engine_schedules WHERE id = ?1), -9223372036854775808
)
