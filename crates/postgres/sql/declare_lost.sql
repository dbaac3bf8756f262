-- The row lock and the check again after it make one of "lost" and "heartbeat"
-- win; the other changes nothing.
WITH lost AS (
  UPDATE task_engine.instances SET lost_at = clock_timestamp()
  WHERE id = $1 AND stopped_at IS NULL AND lost_at IS NULL
    AND ($2 OR heartbeat_at + lease < clock_timestamp())
  RETURNING id
), forgotten AS (
  DELETE FROM task_engine.sleepers WHERE instance_id IN (SELECT id FROM lost)
)
SELECT id FROM lost
