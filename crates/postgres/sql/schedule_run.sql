-- Records a task that was created outside of the slots of a schedule ($1), in the
-- transaction that has created it, and forgets old events. A schedule that has
-- been removed meanwhile has no history.
WITH added AS (
  INSERT INTO task_engine.schedule_events (schedule_id, kind, slots, task_id, requested_by, recorded_at)
  SELECT s.id, 'manual', 0, $2::bigint, $3::text, clock_timestamp()
  FROM task_engine.schedules s WHERE s.id = $1
  FOR KEY SHARE
)
DELETE FROM task_engine.schedule_events old
WHERE old.schedule_id = $1 AND old.id <= (
  SELECT k.id FROM task_engine.schedule_events k WHERE k.schedule_id = $1
  ORDER BY k.id DESC OFFSET $4 LIMIT 1)
