-- Writes a schedule that is still what the writer saw. Should somebody else be
-- writing it, this waits, looks at the version again, and changes nothing.
WITH written AS (
  UPDATE task_engine.schedules s SET
    version = s.version + 1, definition = $2, declared = $3, overlap = $4, anchor = $5,
    paused_at = $6, pause_reason = $7, error = $8, next_at = $9, updated_at = clock_timestamp()
  WHERE s.name = $1 AND s.id = $10 AND s.version = $11
  RETURNING s.id
)
SELECT id, pg_notify('task-engine-schedule', '') FROM written
