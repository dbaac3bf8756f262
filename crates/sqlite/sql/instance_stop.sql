-- Ends a life in good order; one that is over stays as it ended. By its key.
UPDATE task_engine_instances
SET stopped_at = ?2
WHERE id = ?1 AND stopped_at IS NULL AND lost_at IS NULL
