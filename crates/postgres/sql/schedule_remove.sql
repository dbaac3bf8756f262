-- Its slots go with it. Engines set their timers again.
WITH gone AS (
  DELETE FROM task_engine.schedules WHERE name = $1 RETURNING id
)
SELECT id, pg_notify('task-engine-schedule', '') FROM gone
