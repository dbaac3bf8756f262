UPDATE task_engine.instances SET stopped_at = clock_timestamp()
WHERE id = $1 AND stopped_at IS NULL AND lost_at IS NULL
