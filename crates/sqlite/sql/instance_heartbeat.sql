-- Renews a lease, if the life is not over on record. By its key.
UPDATE task_engine_instances
SET heartbeat_at = ?2
WHERE id = ?1 AND stopped_at IS NULL AND lost_at IS NULL
