-- A new schedule. Nothing if the name is taken. Engines set their timers again.
WITH written AS (
  INSERT INTO task_engine.schedules
    (name, definition, declared, overlap, anchor, paused_at, pause_reason, error, next_at,
     created_at, updated_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, clock_timestamp(), clock_timestamp())
  ON CONFLICT (name) DO NOTHING
  RETURNING id
)
SELECT id, pg_notify('task-engine-schedule', '') FROM written
