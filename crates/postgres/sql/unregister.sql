WITH awake AS (DELETE FROM task_engine.sleepers WHERE instance_id = $1)
UPDATE task_engine.instances SET stopped_at = clock_timestamp()
WHERE id = $1 AND stopped_at IS NULL AND lost_at IS NULL
